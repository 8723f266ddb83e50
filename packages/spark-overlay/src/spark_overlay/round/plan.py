"""From slots to messages: what each slot needs sent this round, and how that is cut into frames.

Pure arithmetic on positions; must never touch row bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ofl.contract.dspark_v1.layout import HEADER, STEP, STEP_ENTRY, STEP_REPLY, block_bytes
from ofl.contract.dspark_v1.rules import first_needed

from spark_overlay.round.slots import Slot

FRAMES_MAX = 64
"""Append-only frames in one round, at most."""
FRAME_HEAD_BYTES = HEADER.size + STEP.size
ENTRY_BYTES = STEP_ENTRY.size


@dataclass(slots=True)
class Plan:
    """Rows first .. end-1 of one slot, to be sent in one frame or several.

    index: of the request in the round.  fresh_first: position of the round's first new row of it.
    n_out: drafts wanted after the last row, 0 for none.  pending: drafts are wanted but the rows go
    over several rounds.
    """

    index: int
    slot: int
    first: int
    end: int
    reset: bool
    fresh_first: int
    n_out: int
    pending: bool = False

    @property
    def n_rows(self) -> int:
        return self.end - self.first

    @property
    def n_resent(self) -> int:
        """Rows that were in the ring before this round."""
        return max(0, min(self.end, self.fresh_first) - self.first)


@dataclass(frozen=True, slots=True)
class Piece:
    """A plan's rows first .. end-1 in one frame."""

    plan: Plan
    first: int
    end: int
    reset: bool


def plan_slot(index: int, number: int, slot: Slot, fresh_first: int, n_out: int, window: int) -> Plan:
    """What to send of a slot whose rows from fresh_first on are in hand; earlier ones are in the ring.

    window: rows that drafting attends to, 0 for all.
    """
    available = min(slot.start, fresh_first)
    best_start = max(first_needed(window, slot.end), available)
    first = slot.held_end
    reachable = slot.start <= first or first == fresh_first
    # The worker's window must be whole where the append begins, not only where it ends: the rows may be cut
    # into several frames, and each must find a window that the contract allows.
    whole = slot.held_start <= max(slot.origin, first_needed(window, first))
    if slot.held and reachable and whole and slot.held_start <= best_start <= first:
        return Plan(index, number, first, slot.end, False, fresh_first, n_out)
    return Plan(index, number, best_start, slot.end, True, fresh_first, n_out)


def fit_budget(plans: list[Plan], rows_max: int) -> list[Plan]:
    """Cut the round to rows_max, the shortest plans first: ordinary decoding goes on drafting.

    A plan that does not fit whole keeps what fits, without its wish for drafts.
    """
    if sum(plan.n_rows for plan in plans) <= rows_max:
        return plans
    kept = []
    for plan in sorted(plans, key=lambda plan: plan.n_rows):
        if plan.n_rows > rows_max:
            plan.end = plan.first + rows_max
            plan.pending = plan.n_out > 0
            plan.n_out = 0
        rows_max -= plan.n_rows
        kept.append(plan)
    return kept


def cut_frames(plans: Sequence[Plan], row_bytes: int, max_frame_bytes: int) -> list[list[Piece]]:
    """Pieces by frame, in the order in which they must leave.

    The last frame holds every plan that wants drafts and is the only one that does; with none, no frame does.
    """
    left = {plan.slot: plan.first for plan in plans}
    frames: list[list[Piece]] = []
    while not _fits(plans, left, row_bytes, max_frame_bytes):
        frames.append(_fill(plans, left, row_bytes, max_frame_bytes))
    last = [
        _piece(plan, left[plan.slot], plan.end) for plan in plans if plan.n_out or left[plan.slot] < plan.end
    ]
    return [*frames, last] if last else frames


def frame_bytes_needed(row_bytes: int, max_slots: int, block_length: int) -> int:
    """The smallest limit on a frame with which every round can be cut, and every reply fits."""
    request = FRAME_HEAD_BYTES + max_slots * ENTRY_BYTES + row_bytes
    reply = HEADER.size + STEP_REPLY.size + max_slots * block_bytes(block_length)
    return max(request, reply)


def budget_rows(round_bytes_max: int, max_frame_bytes: int, row_bytes: int, max_slots: int) -> int:
    """Rows of one round, at most: what round_bytes_max allows and FRAMES_MAX frames hold in any case."""
    frame_rows = (max_frame_bytes - FRAME_HEAD_BYTES - max_slots * ENTRY_BYTES) // row_bytes
    return min(round_bytes_max // row_bytes, FRAMES_MAX * frame_rows)


def _piece(plan: Plan, first: int, end: int) -> Piece:
    return Piece(plan, first, end, plan.reset and first == plan.first)


def _fits(plans: Sequence[Plan], left: dict[int, int], row_bytes: int, max_frame_bytes: int) -> bool:
    size = FRAME_HEAD_BYTES
    for plan in plans:
        rows = plan.end - left[plan.slot]
        if rows or plan.n_out:
            size += ENTRY_BYTES + rows * row_bytes
    return size <= max_frame_bytes


def _fill(plans: Sequence[Plan], left: dict[int, int], row_bytes: int, max_frame_bytes: int) -> list[Piece]:
    """One append-only frame, as full as it gets, of the rows that are left; advances `left`."""
    room = max_frame_bytes - FRAME_HEAD_BYTES
    pieces = []
    for plan in plans:
        first = left[plan.slot]
        count = min(plan.end - first, (room - ENTRY_BYTES) // row_bytes)
        if count <= 0:
            continue
        pieces.append(_piece(plan, first, first + count))
        left[plan.slot] = first + count
        room -= ENTRY_BYTES + count * row_bytes
    assert pieces, "the limit on frames was checked against one row"
    return pieces
