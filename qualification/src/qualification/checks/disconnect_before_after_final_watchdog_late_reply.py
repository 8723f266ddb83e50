"""Does a request come through a connection that ends, a message that is lost and a reply that is late?

Each fault hits one request at a known moment of its life: before or after the message that ends its prompt.  What must
follow is read from messages and decisions alone: a complete context sent again, drafts from their own reply, nothing of
the late one.  The watchdog is of the asynchronous hand-off.
"""

from collections.abc import Mapping, Sequence

from ofl.contract import observation_v1 as seen

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks._context import Messages, got_drafts
from qualification.checks._reading import ArmReading, Step, read_pair
from qualification.checks._tally import Book, all_but
from qualification.checks.model import ArmObservations, Check, Conclusion, Engine, FaultOrder, Prompt, Subcase

PREFIX = "disconnect."
LOST = {
    "disconnect_before_final": True,
    "disconnect_after_final": True,
    "drop_before_final": False,
}
"""Faults that cost the worker its rows, and whether the connection goes with them."""
HOLD_STEPS = 6


def drive(engine: Engine) -> None:
    """One fault at a time, each on a prompt of two steps that then says enough to come through it."""
    prompt = engine.facts.budget_tokens + 40
    for number, action in enumerate((*LOST, "hold_reply"), 1):
        request = f"{PREFIX}{action}"
        engine.fault(FaultOrder(request, action, HOLD_STEPS if action == "hold_reply" else 0))
        engine.submit(request, Prompt(prompt, seed=400 + number), 96)
        engine.run()


def decide(off: ArmObservations, on: ArmObservations, _: Mapping[str, float]) -> Sequence[Conclusion]:
    """What followed each fault; that every request came through in both arms."""
    left, right = read_pair(off, on, PREFIX)
    book = Book(CHECK.subcases, left, right, all_but(CHECK.subcases, "requests_come_through"))
    for arm in (left, right):
        for name, done in arm.completed.items():
            whole = done.finish == "length" and done.output_tokens == left.completed[name].output_tokens
            book.look("requests_come_through", arm, whole, f"request {name} ended with {done.finish!r}")
    messages = Messages(right)
    for action, reconnects in LOST.items():
        for fault in right.faults(action, "struck"):
            _lost(book, right, messages, fault, reconnects)
    for fault in right.faults("hold_reply", "held"):
        _late(book, right, messages, fault)
    return book.conclusions()


def _lost(book: Book, arm: ArmReading, messages: Messages, fault: seen.Fault, reconnects: bool) -> None:
    """The worker lost rows of a request: no drafts before they are there again, all of them."""
    name, subcase = fault.request, fault.action
    final = next((step for step, entry in arm.of(name) if entry.sampled), None)
    if final is None or not _at_its_moment(final, fault):
        return  # it struck at another moment than the subcase is about
    good = [step for step, _ in arm.of(name) if step.number > fault.step and got_drafts(step, name)]
    if not good:
        book.wrong(subcase, arm, f"request {name}, step {fault.step}: no drafts came ever after")
        return
    wrong = messages.not_backed(good[0], name) or _not_again(messages, fault, good[0], reconnects)
    book.look(subcase, arm, not wrong, wrong)


def _at_its_moment(final: Step, fault: seen.Fault) -> bool:
    """Whether a fault struck on the side of a prompt's last message that its name says."""
    if fault.action.endswith("after_final"):
        return fault.step >= final.number
    return fault.step < final.number or (fault.step == final.number and not got_drafts(final, fault.request))


def _not_again(messages: Messages, fault: seen.Fault, good: Step, reconnects: bool) -> str:
    """Why the first drafts after a loss are from rows that the worker cannot have; empty where they are not."""
    name, where = fault.request, f"request {fault.request}, step {good.number}"
    sent, message = messages.of(name), messages.awaited(good, name)
    assert message is not None, "drafts that are backed have their message"
    lost_from = min(
        (each.slot.first_position for each in sent if each.exchanged.step == fault.step), default=0
    )
    if not any(
        each.slot.reset or (not reconnects and each.slot.first_position <= lost_from)
        for each in sent
        if fault.step < each.exchanged.step <= good.number
    ):
        return f"{where}: drafts although the rows that were lost were not sent again"
    epochs = [each.exchanged.epoch for each in sent if each.exchanged.step <= fault.step]
    if reconnects and epochs and message.exchanged.epoch <= max(epochs):
        return f"{where}: the session goes on in epoch {message.exchanged.epoch} after its connection ended"
    if message.slot.partial_window:
        return f"{where}: the window is partial although the ring reaches back"
    return ""


def _late(book: Book, arm: ArmReading, messages: Messages, fault: seen.Fault) -> None:
    """A reply was held past its deadline and came during a later step."""
    name = fault.request
    released = [
        other.step
        for other in arm.faults("hold_reply", "released")
        if other.request == name and other.step > fault.step
    ]
    steps = [step for step, _ in arm.of(name)]
    held = next((step for step in steps if step.number == fault.step), None)
    if not released or held is None:
        return
    message = messages.awaited(held, name)
    late = message.slot.drafts if message is not None else seen.NO_TAG
    nothing = not got_drafts(held, name) and held.handed_over(name) == seen.NO_TAG
    timed_out = held.decided is not None and held.decided.reason == "timeout"
    where = f"request {name}, step {held.number}"
    book.look(
        "late_reply_refused",
        arm,
        nothing and timed_out,
        f"{where}: not ended by its deadline, without drafts",
    )
    for step in steps:
        if step.number > held.number and got_drafts(step, name):
            wrong = _is_late(step, name, late, messages)
            book.look("late_reply_refused", arm, not wrong, wrong)
    _newer(book, arm, messages, fault, released[0])


def _is_late(step: Step, name: str, late: str, messages: Messages) -> str:
    """Whether what left in a later step is the late reply's, though its own says otherwise."""
    own = messages.awaited(step, name)
    if late and step.handed_over(name) == late and own is not None and own.slot.drafts != late:
        return f"request {name}, step {step.number}: the late reply's drafts left"
    return ""


def _newer(book: Book, arm: ArmReading, messages: Messages, fault: seen.Fault, released: int) -> None:
    """Newer rounds were under way when it came, and what they staged was used as it was."""
    name = fault.request
    newer = [
        step
        for step, _ in arm.of(name)
        if step.number > fault.step and messages.awaited(step, name) is not None and step.number <= released
    ]
    good = [step for step in newer if got_drafts(step, name)]
    after = [step for step, _ in arm.of(name) if step.number > released and got_drafts(step, name)]
    for step in newer:
        if step not in good and step.handed_over(name) != seen.NO_TAG:
            book.wrong(
                "newer_staging_intact", arm, f"request {name}, step {step.number}: drafts left of no reply"
            )
    if good and not after:
        book.wrong(
            "newer_staging_intact",
            arm,
            f"request {name}, step {released}: no drafts came after the late reply",
        )
    for step in (*good, *after) if good else ():
        wrong = messages.not_backed(step, name)
        if not wrong and step.handed_over(name) != _decided(step, name):
            wrong = f"request {name}, step {step.number}: other drafts left than were decided"
        book.look("newer_staging_intact", arm, not wrong, wrong)


def _decided(step: Step, name: str) -> str:
    decision = step.decision(name)
    return decision.drafts if decision is not None else seen.NO_TAG


CHECK = Check(
    name="disconnect_before_after_final_watchdog_late_reply",
    asks="Does a request come through lost connections, lost messages and late replies?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        Subcase(
            "disconnect_before_final",
            "After a connection that ends before a prompt's last message: is the whole context sent again first?",
        ),
        Subcase("disconnect_after_final", "And after one that ends behind it?"),
        Subcase(
            "drop_before_final", "After a message that is lost before it: no drafts until its rows are there?"
        ),
        Subcase(
            "late_reply_refused",
            "Does a round end at its deadline, and is its reply never used when it comes?",
        ),
        Subcase("newer_staging_intact", "Are newer rounds' drafts what they were when the late reply comes?"),
        Subcase(
            "requests_come_through", "Does every request end at the length that was asked, in both arms?"
        ),
        Subcase(
            "watchdog_releases", "Does the watchdog let a step go whose round hangs?", "asynchronous_hand_off"
        ),
        Subcase(
            "watchdog_late_publication", "Is what is published after it refused?", "asynchronous_hand_off"
        ),
    ),
    drive=drive,
    decide=decide,
    requests=PREFIX,
    seconds=90.0,
)
