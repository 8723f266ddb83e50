"""The words of one round's decision on the host and on the device: what rank 0 fills and every rank reads.

Owns two int32 buffers of `DecisionLayout`, one and the same where the device is the host.  Imports torch, never
vLLM; must never wait for the device except in `read`, and in `failed` for the upload before the last.
"""

import numpy as np
import torch

from spark_overlay.decision import Decision, DecisionLayout
from spark_overlay.round import reasons
from spark_overlay.round.messages import Outcome, RoundResult


class Words:
    """One engine's words.

    drafts, outcomes, confidences: views of the device's, int32 [max_requests, K], int32 [max_requests] and float32
    [max_requests, K].
    """

    def __init__(self, layout: DecisionLayout, device: torch.device) -> None:
        self.layout = layout
        on_host = device.type == "cpu"
        self._host = torch.zeros(layout.words, dtype=torch.int32, pin_memory=not on_host)
        self.device = self._host if on_host else torch.zeros(layout.words, dtype=torch.int32, device=device)
        self._array = self._host.numpy()
        self._uploaded = None if on_host else torch.Event(device)
        self.outcomes = self.device[layout.outcomes]
        shape = (layout.max_requests, layout.n_drafts)
        self.drafts = self.device[layout.drafts].view(shape)
        self.confidences = self.device[layout.confidences].view(torch.float32).view(shape)

    @property
    def host_bytes(self) -> int:
        """Bytes on the host."""
        return int(self._array.nbytes)

    @property
    def device_bytes(self) -> int:
        """Bytes on a device apart from the host."""
        return 0 if self._uploaded is None else self.host_bytes

    def failed(self, n_requests: int, *, must_raise: bool) -> None:
        """Fill in a failed round, so that whatever happens next there is something true to send."""
        if self._uploaded is not None:
            self._uploaded.synchronize()
        shape = (n_requests, self.layout.n_drafts)
        zeros, none = np.zeros(shape, np.float32), np.zeros(n_requests, bool)
        outcomes = np.full(n_requests, Outcome.ROUND_FAILED, np.int32)
        result = RoundResult(
            zeros.astype(np.int32), zeros, zeros, none, none, outcomes, reasons.INTERNAL_ERROR
        )
        self.layout.encode(self._array, 0, result, must_raise=must_raise)

    def fill(self, number: int, result: RoundResult, *, must_raise: bool) -> None:
        """Fill in a round's result; `failed` came before it."""
        self.layout.encode(self._array, number, result, must_raise=must_raise)

    def upload(self) -> None:
        """Send the host's words to the device, in stream order."""
        if self._uploaded is not None:
            self.device.copy_(self._host, non_blocking=True)
            self._uploaded.record()

    def read(self) -> Decision:
        """What the device's words say; waits for them.  Arrays are views that hold until the next round."""
        if self._uploaded is not None:
            self._host.copy_(self.device)
        return self.layout.decode(self._array)
