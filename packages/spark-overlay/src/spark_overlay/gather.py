"""Taps and the facts of a step, from the device to the host in one copy.

Owns two buffers of one layout, one on the device and one on the host (the same one where the device is the
host), made once: first the facts of every request, then the rows.  Imports torch; must never wait for
anything but its own copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

FACTS = ("first_position", "num_sampled", "num_rejected", "anchor")
FACT_BYTES = 8
"""Facts are int64 [len(FACTS), max_requests] at the start of the buffer."""
ROW_ALIGNMENT = 64


@dataclass(frozen=True)
class Trimmed:
    """How many tokens each request really has in a step whose drafts were trimmed on the device.

    starts: int32 [requests + 1], first token of each request, on the device.  undrafted: int [requests], tokens that
    are no drafts, on the host.
    """

    starts: torch.Tensor
    undrafted: NDArray[np.int32]


@dataclass(frozen=True)
class StepInputs:
    """One step as the engine's model runner holds it; tensors on its device.

    taps: tap_count tensors [tokens, hidden_size].
    positions: int64 [tokens].  num_sampled, num_rejected: int32 [requests].
    last_sampled: int64 [max_requests, 1], by slot.  next_prefill: int32 [lookahead, max_requests], by slot.
    slots: int64 [requests].  starts: int [requests + 1], first token of each request, on the host.
    draft_counts: int [requests], drafts verified in this step and thus the most that can be rejected, on the
    host.
    first_valid: int [requests], index of each request's first valid token, on the host; None where all are valid.
    For targets that trim rows of a prefill and leave zeros in their places: a trimmed row never leaves.
    trimmed: where drafts were left out on the device: it holds, and starts and draft_counts do not.
    """

    taps: Sequence[torch.Tensor]
    positions: torch.Tensor
    num_sampled: torch.Tensor
    num_rejected: torch.Tensor
    last_sampled: torch.Tensor
    next_prefill: torch.Tensor
    slots: torch.Tensor
    starts: NDArray[np.int32]
    draft_counts: NDArray[np.int32]
    first_valid: NDArray[np.int32] | None = None
    trimmed: Trimmed | None = None


@dataclass(frozen=True)
class Gathered:
    """The same on the host; arrays and rows are views that hold until the next gather.

    Arrays are int64 [requests].  n_rows: valid rows of each request, its last ones; row_offsets: index of the
    first of them in rows.  first_positions: absolute position of that row.  anchors: token at the position
    after the last row.  draft_counts: drafts that were verified.  rows: bytes, one row after the other.
    """

    first_positions: NDArray[np.int64]
    num_sampled: NDArray[np.int64]
    n_rows: NDArray[np.int64]
    row_offsets: NDArray[np.int64]
    anchors: NDArray[np.int64]
    draft_counts: NDArray[np.int64]
    rows: memoryview


class TapGather:
    """Brings a step to the host.  One thread uses it, with the engine's stream current.

    window: context rows that the drafter can use, 0 for all; a request's earlier rows are left where they
    are.
    """

    def __init__(
        self,
        *,
        max_requests: int,
        max_tokens: int,
        max_drafts: int,
        tap_count: int,
        hidden_size: int,
        dtype: torch.dtype,
        device: torch.device,
        window: int,
    ) -> None:
        self._tap_count, self._hidden_size, self._window = tap_count, hidden_size, window
        self._max_requests = max_requests
        self.max_rows = min(max_tokens, max_requests * (window + max_drafts)) if window else max_tokens
        self.row_bytes = tap_count * hidden_size * dtype.itemsize
        self._rows_at = -(-len(FACTS) * FACT_BYTES * max_requests // ROW_ALIGNMENT) * ROW_ALIGNMENT
        size = self._rows_at + self.max_rows * self.row_bytes
        on_host = device.type == "cpu"
        self._host = torch.zeros(size, dtype=torch.uint8, pin_memory=not on_host)
        self._stage = self._host if on_host else torch.zeros(size, dtype=torch.uint8, device=device)
        self._facts = (
            self._stage[: len(FACTS) * FACT_BYTES * max_requests].view(torch.int64).view(len(FACTS), -1)
        )
        self._rows = self._stage[self._rows_at :].view(dtype).view(self.max_rows, tap_count * hidden_size)
        # Pinned, because an upload from pageable memory would wait for the whole step before the facts are enqueued.
        self._firsts = torch.zeros(max_requests, dtype=torch.int64, pin_memory=not on_host)
        host = self._host.numpy()
        self._host_facts = (
            host[: len(FACTS) * FACT_BYTES * max_requests].view(np.int64).reshape(len(FACTS), -1)
        )
        self._host_rows = memoryview(host)[self._rows_at :]

    @property
    def host_bytes(self) -> int:
        """Bytes of the host's buffer."""
        return int(self._host.numel())

    @property
    def device_bytes(self) -> int:
        """Bytes of a device's buffer apart from it; 0 where the device is the host."""
        return 0 if self._stage is self._host else int(self._stage.numel())

    def gather(self, step: StepInputs) -> Gathered:
        """Copy the step's last usable rows and its facts to the host, and wait for the copy.

        Raises ValueError where the taps are not what the drafter's configuration says.
        """
        self._check_taps(step.taps)
        if step.trimmed is not None:
            step = _as_trimmed(step, step.trimmed)
        ends = step.starts[1:].astype(np.int64)
        firsts = step.starts[:-1].astype(np.int64)
        if step.first_valid is not None:
            np.maximum(firsts, step.first_valid, out=firsts)
        if self._window:
            np.maximum(firsts, ends - (self._window + step.draft_counts), out=firsts)
        counts = ends - firsts
        offsets = np.cumsum(counts) - counts
        total = int(counts.sum())
        self._stage_rows(step.taps, firsts, counts, offsets, total)
        # A request without a valid row has no place of its own to read a position from; its last token has one.
        held = np.minimum(firsts, ends - 1)
        self._stage_facts(step, held)
        if self._stage is not self._host:
            used = self._rows_at + total * self.row_bytes
            self._host[:used].copy_(self._stage[:used], non_blocking=True)
            torch.accelerator.current_stream(self._stage.device).synchronize()
        facts = self._host_facts[:, : len(counts)]
        return Gathered(
            first_positions=facts[0] + (firsts - held),
            num_sampled=facts[1],
            n_rows=counts - facts[2],
            row_offsets=offsets,
            anchors=facts[3],
            draft_counts=step.draft_counts.astype(np.int64),
            rows=self._host_rows[: total * self.row_bytes],
        )

    def _check_taps(self, taps: Sequence[torch.Tensor]) -> None:
        shapes = [tuple(tap.shape[1:]) for tap in taps]
        if shapes != [(self._hidden_size,)] * self._tap_count:
            raise ValueError(
                f"the target gave taps of shapes {shapes}; the drafter's configuration says "
                f"{self._tap_count} of {self._hidden_size}"
            )

    def _stage_rows(
        self,
        taps: Sequence[torch.Tensor],
        firsts: NDArray[np.int64],
        counts: NDArray[np.int64],
        offsets: NDArray[np.int64],
        total: int,
    ) -> None:
        if firsts[-1] == offsets[-1]:  # no request left rows out, so they lie as they are needed
            torch.cat([tap[:total] for tap in taps], dim=-1, out=self._rows[:total])
            return
        for first, count, offset in zip(firsts.tolist(), counts.tolist(), offsets.tolist(), strict=True):
            parts = [tap[first : first + count] for tap in taps]
            torch.cat(parts, dim=-1, out=self._rows[offset : offset + count])

    def _stage_facts(self, step: StepInputs, firsts: NDArray[np.int64]) -> None:
        count = len(firsts)
        facts = self._facts[:, :count]
        staged = self._firsts[:count]
        staged.copy_(torch.from_numpy(firsts))
        facts[0] = step.positions[staged.to(step.positions.device, non_blocking=True)]
        facts[1] = step.num_sampled
        facts[2] = step.num_rejected
        sampled = step.last_sampled[step.slots, 0]
        facts[3] = torch.where(
            step.num_sampled > 0, sampled, step.next_prefill[0, step.slots].to(torch.int64)
        )


def _as_trimmed(step: StepInputs, trimmed: Trimmed) -> StepInputs:
    """The step as the device has it.  Waits for the device, which knows last what it verified."""
    starts = trimmed.starts.cpu().numpy()
    return replace(step, starts=starts, draft_counts=np.diff(starts) - trimmed.undrafted, trimmed=None)
