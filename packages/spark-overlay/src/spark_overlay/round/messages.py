"""What enters a round and what leaves it.  Values only; must never hold behaviour."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Outcome(IntEnum):
    """What became of one request in one round; small integers so that a device broadcast can carry them."""

    OK = 0
    """Drafts are there."""
    NO_DRAFT = 1
    """None were asked for; the context was kept."""
    ROUND_FAILED = 2
    """The whole round failed; `RoundResult.reason` says why."""
    STALE_GENERATION = 3
    NEEDS_RESET = 4
    GAP = 5
    DRAFTER = 6
    NO_CONTEXT = 7
    """No row of this request is known yet, so there is nothing to draft from."""
    RESYNC_PENDING = 8
    """The window is too long for one round; it is being sent over several."""
    BAD_REQUEST = 9
    """The engine described it wrongly (slot, position or token out of range); nothing of it was sent."""
    UNCONFIRMED = 10
    """The worker refused, or has not acknowledged, earlier rows; its drafts are not used."""


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """One request of this step.

    slot: 0 .. max_slots-1, constant while the request is scheduled.
    request_id: the engine's name for it.
    first_position: absolute position of its first valid row in this step.
    n_rows: valid rows (scheduled rows less rejected ones); the anchor's position is first_position + n_rows.
    row_offset: index of its first row in the round's row buffer.
    anchor: token id at the anchor's position; any value where n_out is 0.
    n_out: draft positions wanted, 0 (only keep the context) .. block_length.
    added: the engine added this request, for the first time or again, since its last round.  An engine that
        cannot tell leaves it False: a new request_id in the slot, or a jump in position, is noticed anyway.
    """

    slot: int
    request_id: str
    first_position: int
    n_rows: int
    row_offset: int
    anchor: int
    n_out: int
    added: bool = False


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Outcome of one round, in the order of its requests.

    drafts: int32 [n, block_length]; zeros where there is none.  Ids of the target's vocabulary otherwise.
    confidences: float32 [n, block_length], 0..1; zeros where there is no draft.
    margins: float32 [n, block_length], the worker's logit of the draft minus the runner-up's; zeros where there
        is no draft.
    partial: bool [n]; True where the drafts come from a window that lacks rows (PARTIAL_WINDOW).
    ok: bool [n]; True exactly where outcome is OK.
    outcomes: int32 [n], values of `Outcome`.
    reason: why the whole round failed, one of `round.reasons`; "" where it did not.
    detail: one clause for a log; "" where there is none.

    The arrays are views of the core's own buffers: they hold until the next round begins.
    """

    drafts: NDArray[np.int32]
    confidences: NDArray[np.float32]
    margins: NDArray[np.float32]
    partial: NDArray[np.bool_]
    ok: NDArray[np.bool_]
    outcomes: NDArray[np.int32]
    reason: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether the whole round failed."""
        return bool(self.reason)
