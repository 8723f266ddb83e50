"""The buffers in which a round's result is built.  Allocated once; must never outgrow max_slots."""

import numpy as np
from ofl.contract.dspark_v1 import StepReplyEntry

from spark_overlay.round.messages import Outcome, RoundResult


class ResultBuffers:
    """Arrays of `RoundResult`, reused from round to round."""

    def __init__(self, max_slots: int, block_length: int) -> None:
        self._drafts = np.zeros((max_slots, block_length), np.int32)
        self._confidences = np.zeros((max_slots, block_length), np.float32)
        self._margins = np.zeros((max_slots, block_length), np.float32)
        self._partial = np.zeros(max_slots, np.bool_)
        self._ok = np.zeros(max_slots, np.bool_)
        self._outcomes = np.zeros(max_slots, np.int32)
        self._count = 0

    def clear(self, count: int) -> None:
        """Begin a result of count requests, none of which has drafts or wants any."""
        self._count = count
        self._drafts[:count] = 0
        self._confidences[:count] = 0.0
        self._margins[:count] = 0.0
        self._partial[:count] = False
        self._ok[:count] = False
        self._outcomes[:count] = Outcome.NO_DRAFT

    def draft(self, index: int, entry: StepReplyEntry, partial: bool) -> None:
        """Request index got the drafts of this entry."""
        self._drafts[index, : entry.n_out] = entry.drafts
        self._confidences[index, : entry.n_out] = entry.confidences
        self._margins[index, : entry.n_out] = entry.margins
        self._partial[index] = partial
        self._ok[index] = True
        self._outcomes[index] = Outcome.OK

    def set_outcome(self, index: int, outcome: Outcome) -> None:
        """Request index got none, for this reason."""
        self._outcomes[index] = outcome

    def result(self, reason: str = "", detail: str = "") -> RoundResult:
        """The result as it stands, as views."""
        count = self._count
        return RoundResult(
            self._drafts[:count],
            self._confidences[:count],
            self._margins[:count],
            self._partial[:count],
            self._ok[:count],
            self._outcomes[:count],
            reason,
            detail,
        )
