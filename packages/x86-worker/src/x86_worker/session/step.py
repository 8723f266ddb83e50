"""STEP: take the rows of every entry, then draft once for all that want drafts.

By the time this runs the message has been checked as a whole, so nothing is half applied for a malformed one.
Entries are independent: one that fails never touches another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ofl.contract.dspark_v1 import RequestStatus, Shape, Step, StepEntry, StepReplyEntry
from ofl.contract.dspark_v1.rules import check_reply_entry
from ofl.contract.records import ContractError

from x86_worker.drafters.base import Draft, Drafter, DraftFailure, DraftWish
from x86_worker.session.directory import Session
from x86_worker.session.slot import Slot


@dataclass(frozen=True)
class StepOutcome:
    """The entries of the reply, in order, and (slot, reason) of each that the drafter failed."""

    entries: tuple[StepReplyEntry, ...]
    failures: tuple[tuple[int, str], ...]


def run_step(session: Session, step: Step, drafter: Drafter) -> StepOutcome:
    """Applies a checked STEP to its session and drafts.  Never raises for what the drafter does."""
    slots = [_slot(session, entry.slot, drafter) for entry in step.entries]
    statuses = [
        slot.apply(entry, rows) for slot, entry, rows in zip(slots, step.entries, step.rows, strict=True)
    ]
    wanting = [
        index
        for index, entry in enumerate(step.entries)
        if entry.needs_draft and statuses[index] is RequestStatus.OK
    ]
    wishes = [_wish(slots[index], step.entries[index]) for index in wanting]
    drafts = dict(zip(wanting, _draft(drafter, wishes), strict=True))
    entries = []
    for index, (slot, sent) in enumerate(zip(slots, step.entries, strict=True)):
        entries.append(_entry(slot, sent, statuses[index], drafts.get(index), session.shape, index))
    session.steps += 1
    session.drafts += sum(len(entry.drafts) for entry in entries)
    session.rows_taken += sum(
        sent.n_rows for sent, got in zip(step.entries, entries, strict=True) if got.status is RequestStatus.OK
    )
    failures = tuple(
        (entry.slot, slot.failure)
        for slot, entry in zip(slots, entries, strict=True)
        if entry.status is RequestStatus.DRAFTER
    )
    return StepOutcome(tuple(entries), failures)


def _slot(session: Session, number: int, drafter: Drafter) -> Slot:
    slot = session.slots.get(number)
    if slot is None:
        shape = session.shape
        new_context = partial(drafter.new_context, shape.row_form, shape.row_dtype)
        slot = session.slots[number] = Slot(new_context, shape)
    return slot


def _wish(slot: Slot, entry: StepEntry) -> DraftWish:
    assert slot.context is not None, "only an entry that was taken is drafted for"
    # The worker may have dropped rows that no query attends to, so its start can lie above window_start.
    window_start = max(entry.window_start, slot.start)
    return DraftWish(slot.context, window_start, entry.anchor, entry.anchor_position, entry.n_out)


def _draft(drafter: Drafter, wishes: Sequence[DraftWish]) -> list[Draft | DraftFailure]:
    if not wishes:
        return []
    try:
        results = drafter.draft(wishes)
    except Exception as error:
        # Not narrower: whatever a drafter raises fails this round's drafts and nothing else.
        return [DraftFailure(f"draft: {type(error).__name__}: {error}")] * len(wishes)
    if len(results) != len(wishes):
        return [DraftFailure(f"draft: {len(results)} results for {len(wishes)} wishes")] * len(wishes)
    return results


def _entry(
    slot: Slot,
    sent: StepEntry,
    status: RequestStatus,
    draft: Draft | DraftFailure | None,
    shape: Shape,
    index: int,
) -> StepReplyEntry:
    if isinstance(draft, DraftFailure):
        slot.fail(draft.reason)
        return _bare(slot, sent, RequestStatus.DRAFTER)
    if draft is None:
        return _bare(slot, sent, status)
    blocks = (tuple(draft.drafts), tuple(draft.confidences), tuple(draft.margins))
    entry = StepReplyEntry(sent.slot, status, slot.generation, slot.start, slot.end, *blocks)
    try:
        check_reply_entry(entry, sent, shape, index)
    except ContractError as error:
        slot.fail(f"the drafter broke the contract: {error}")
        return _bare(slot, sent, RequestStatus.DRAFTER)
    return entry


def _bare(slot: Slot, sent: StepEntry, status: RequestStatus) -> StepReplyEntry:
    return StepReplyEntry(sent.slot, status, slot.generation, slot.start, slot.end, (), (), ())
