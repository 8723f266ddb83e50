"""What rank 0 told the worker of a request, and whether a reply may be believed.  Pure.

Positions are absolute, ends one past the last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ofl.contract import observation_v1 as seen
from ofl.contract.dspark_v1.rules import first_needed

from qualification.checks._reading import ArmReading, Step


@dataclass(frozen=True)
class Sent:
    """One message about a request, and the context that the worker holds after it if it got everything so far.

    start, end: of that context since the last RESET.  wrong: a clause where the message does not follow; else empty.
    """

    exchanged: seen.Exchanged
    slot: seen.ExchangedSlot
    start: int
    end: int
    wrong: str

    def whole(self, window: int) -> bool:
        """Whether that is all that drafting attends to."""
        return not self.wrong and self.start <= first_needed(window, self.end)


class Messages:
    """All messages of one arm, by request, in the order in which they left."""

    def __init__(self, arm: ArmReading) -> None:
        self._arm = arm
        self._of: dict[str, list[Sent]] = {}
        self._awaited: dict[tuple[int, str], list[Sent]] = {}
        self.all: list[Sent] = []
        for exchanged in sorted(arm.ranks[0].exchanges, key=lambda record: record.round):
            for slot in exchanged.slots:
                self._add(exchanged, slot)

    def _add(self, exchanged: seen.Exchanged, slot: seen.ExchangedSlot) -> None:
        before = self._of.setdefault(slot.request, [])
        sent = _follow(before[-1] if before else None, exchanged, slot)
        before.append(sent)
        self.all.append(sent)
        if exchanged.awaited and slot.need_draft:
            self._awaited.setdefault((exchanged.step, slot.request), []).append(sent)

    def of(self, request: str) -> Sequence[Sent]:
        """Messages about a request."""
        return self._of.get(request, ())

    def awaited(self, step: Step, request: str) -> Sent | None:
        """The message of a step that asks drafts for a request; None where there is none, or more than one."""
        found = self._awaited.get((step.number, request), ())
        return found[0] if len(found) == 1 else None

    def not_backed(self, step: Step, request: str) -> str:
        """Why the drafts that a step decided on for a request do not stem from its own reply; empty where they do.

        Its own reply: in time, to this step's message, with the same epoch, round and generation, from a whole window
        or one that was called partial.
        """
        where = f"request {request}, step {step.number}"
        sent, decision = self.awaited(step, request), step.decision(request)
        if sent is None or decision is None:
            return f"{where}: drafts without one message that asked for them"
        clause = _doubt(sent, decision, self._arm.facts)
        return f"{where}: {clause}" if clause else ""


def _doubt(sent: Sent, decision: seen.DecidedRequest, facts: seen.Facts) -> str:
    """What is wrong with a reply whose drafts were decided on."""
    exchanged, slot = sent.exchanged, sent.slot
    needed = first_needed(facts.window, sent.end)
    if exchanged.reply != "in time":
        return f"drafts although the reply was {exchanged.reply!r}"
    if not echoed(exchanged):
        return "drafts from a reply to another epoch or round"
    if slot.generation_echoed != slot.generation:
        return "drafts from a reply of another generation"
    if slot.status != "OK" or not slot.n_out:
        return f"drafts although the reply says {slot.status or 'nothing'} and {slot.n_out} were asked"
    if slot.drafts != decision.drafts:
        return "other drafts than the reply's"
    if sent.wrong:
        return sent.wrong
    if not slot.partial_window and (sent.start > needed or slot.held_from > needed):
        return (
            f"a window from {max(sent.start, slot.held_from)} on is called whole where it begins at {needed}"
        )
    return ""


def echoed(exchanged: seen.Exchanged) -> bool:
    """Whether the reply names the message that it answers."""
    return (exchanged.epoch_echoed, exchanged.round_echoed) == (exchanged.epoch, exchanged.round)


def got_drafts(step: Step, request: str) -> bool:
    """Whether a step decided on remote drafts for a request."""
    decision = step.decision(request)
    return decision is not None and decision.outcome == "OK"


def good_steps(arm: ArmReading, request: str) -> Iterator[Step]:
    """Steps in which a request got remote drafts, on rank 0."""
    return (step for step, _ in arm.of(request) if got_drafts(step, request))


def _follow(before: Sent | None, exchanged: seen.Exchanged, slot: seen.ExchangedSlot) -> Sent:
    end = slot.first_position + slot.n_rows
    wrong = (
        ""
        if (slot.rows != seen.NO_TAG) == (slot.n_rows > 0)
        else f"{slot.n_rows} rows with tag {slot.rows!r}"
    )
    if slot.reset:
        return Sent(exchanged, slot, slot.first_position, end, wrong)
    if before is None or (before.exchanged.epoch, before.slot.generation, before.slot.slot) != (
        exchanged.epoch,
        slot.generation,
        slot.slot,
    ):
        return Sent(
            exchanged, slot, slot.first_position, end, "a new session or generation begins without RESET"
        )
    if not before.start <= slot.first_position <= before.end:
        wrong = f"rows from {slot.first_position} on where the worker holds {before.start} to {before.end}"
    return Sent(exchanged, slot, before.start, end, wrong)
