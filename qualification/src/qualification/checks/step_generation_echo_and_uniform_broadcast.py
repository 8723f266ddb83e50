"""Does a reply name the very step, session and generation that it answers, and do all ranks act on the same words?

Normal rounds, rounds that fail, the rounds after them, and a reply of an old generation that must not be used.
"""

from collections.abc import Mapping, Sequence

from ofl.contract import observation_v1 as seen

from qualification.checks._arms import LOCAL_2, REMOTE_2, WHOSE_DRAFTS
from qualification.checks._context import Messages, echoed, got_drafts
from qualification.checks._reading import ArmReading, Step, read_pair
from qualification.checks._tally import Book, all_but
from qualification.checks.model import ArmObservations, Check, Conclusion, Engine, FaultOrder, Prompt, Subcase

PREFIX = "echo."


def drive(engine: Engine) -> None:
    """Two requests undisturbed; one whose reply is held past its deadline; one that meets an old generation."""
    engine.submit(f"{PREFIX}normal.1", Prompt(48, seed=301), 24)
    engine.submit(f"{PREFIX}normal.2", Prompt(20, seed=302), 24, at_step=2)
    engine.run()
    engine.fault(FaultOrder(f"{PREFIX}fails", "hold_reply", hold_steps=2))
    engine.submit(f"{PREFIX}fails", Prompt(36, seed=303), 48)
    engine.run()
    engine.fault(FaultOrder(f"{PREFIX}old", "old_generation"))
    engine.submit(f"{PREFIX}old", Prompt(36, seed=304), 64)
    engine.run()


def decide(off: ArmObservations, on: ArmObservations, _: Mapping[str, float]) -> Sequence[Conclusion]:
    """Every step of the arm that has replies; the other shows that local drafts leave alike on all ranks."""
    left, right = read_pair(off, on, PREFIX)
    book = Book(CHECK.subcases, left, right, all_but(CHECK.subcases, "published_alike"))
    messages = Messages(right)
    for arm in (left, right):
        _published(book, arm)
    _uniform(book, right)
    _rounds(book, right, messages)
    _generations(book, right, messages)
    _injected(book, right, messages)
    return book.conclusions()


def _published(book: Book, arm: ArmReading) -> None:
    for step in arm.steps():
        for rank, reading in enumerate(arm.ranks[1:], 1):
            other = reading.steps.get(step.number)
            same = other is not None and other.published is not None and _tags(other) == _tags(step)
            book.look(
                "published_alike",
                arm,
                same,
                f"step {step.number}: rank {rank} hands over other drafts than rank 0",
            )


def _tags(step: Step) -> list[tuple[str, str]]:
    return [(entry.request, step.handed_over(entry.request)) for entry in step.scheduled.requests]


def _uniform(book: Book, arm: ArmReading) -> None:
    """What ranks read after the broadcast, and that each hands over exactly that."""
    for step in arm.steps():
        views = [reading.steps.get(step.number) for reading in arm.ranks]
        for rank, view in enumerate(views):
            where = f"step {step.number}, rank {rank}"
            same = view is not None and view.decided == step.decided
            book.look("uniform_broadcast", arm, same, f"{where}: read other words than rank 0")
            if view is not None:
                _handed_over(book, arm, view, where)


def _handed_over(book: Book, arm: ArmReading, step: Step, where: str) -> None:
    names = [entry.request for entry in step.scheduled.requests]
    decided = [entry.request for entry in step.decided.requests] if step.decided is not None else []
    if names != decided:
        book.wrong("uniform_broadcast", arm, f"{where}: words for {decided} in a step of {names}")
    for name in names:
        decision = step.decision(name)
        drafts = decision.drafts if decision is not None and decision.outcome == "OK" else seen.NO_TAG
        if step.handed_over(name) != drafts:
            book.wrong(
                "uniform_broadcast", arm, f"request {name}, {where}: other drafts leave than were decided"
            )


def _rounds(book: Book, arm: ArmReading, messages: Messages) -> None:
    """Normal, failed, and the first good one after a failed one, request by request."""
    struck = {fault.request for fault in arm.faults("old_generation", "struck")}
    for name in arm.completed:
        if name in struck:
            continue  # see `_injected`
        failed_before = False
        for step, _ in arm.of(name):
            decision = step.decision(name)
            if decision is None or step.decided is None:
                continue
            where = f"request {name}, step {step.number}"
            if step.decided.reason:
                if decision.outcome != "NO_DRAFT":
                    nothing = decision.outcome == "ROUND_FAILED" and decision.drafts == seen.NO_TAG
                    book.look(
                        "failed_round",
                        arm,
                        nothing,
                        f"{where}: drafts or {decision.outcome} in a failed round",
                    )
                    failed_before = True
            elif decision.outcome == "OK":
                wrong = messages.not_backed(step, name)
                book.look("recovery_round" if failed_before else "normal_round", arm, not wrong, wrong)
                failed_before = False


def _generations(book: Book, arm: ArmReading, messages: Messages) -> None:
    """A slot's generation only grows within a session, and grows when the slot changes hands."""
    newest: dict[tuple[int, int], tuple[int, str]] = {}
    struck = {(fault.step, fault.request) for fault in arm.faults("old_generation", "struck")}
    for sent in messages.all:
        name, generation = sent.slot.request, sent.slot.generation
        if (sent.exchanged.step, name) in struck:
            continue
        key = (sent.exchanged.epoch, sent.slot.slot)
        before, owner = newest.get(key, (0, name))
        newest[key] = (generation, name)
        right = generation > before if owner != name else generation >= before
        if arm.mine(name):
            where = f"request {name}, step {sent.exchanged.step}"
            book.look(
                "generations_grow", arm, right, f"{where}: generation {generation} after {before} of {owner}"
            )


def _injected(book: Book, arm: ArmReading, messages: Messages) -> None:
    """The step in which an old generation was injected ends without drafts of it, on every rank; then it goes on."""
    for fault in arm.faults("old_generation", "struck"):
        name, where = fault.request, f"request {fault.request}, step {fault.step}"
        views = [reading.steps.get(fault.step) for reading in arm.ranks]
        used = [
            rank
            for rank, view in enumerate(views)
            if view is None or got_drafts(view, name) or view.handed_over(name) != seen.NO_TAG
        ]
        step = views[0]
        sent = messages.awaited(step, name) if step is not None else None
        if sent is not None and _is_old(sent.exchanged, sent.slot):
            refused = not used
            book.look(
                "old_generation_refused",
                arm,
                refused,
                f"{where}: drafts of an old generation on ranks {used}",
            )
        after = [later for later, _ in arm.of(name) if later.number > fault.step and got_drafts(later, name)]
        if after:
            wrong = messages.not_backed(after[0], name)
            book.look("recovery_after_old_generation", arm, not wrong, wrong)


def _is_old(exchanged: seen.Exchanged, slot: seen.ExchangedSlot) -> bool:
    """Whether the exchange shows what was injected: another generation, or a reply that could not be read for it."""
    return (
        slot.generation_echoed not in (slot.generation, -1)
        or slot.status == "STALE_GENERATION"
        or exchanged.reply in ("unreadable", "refused")
        or not echoed(exchanged)
    )


CHECK = Check(
    name="step_generation_echo_and_uniform_broadcast",
    asks="Do replies name what they answer, and do all ranks act on the same words?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL_2,
    on=REMOTE_2,
    subcases=(
        Subcase("normal_round", "Do drafts come from a reply with this step's epoch, round and generation?"),
        Subcase("failed_round", "Does a round that failed leave no drafts?"),
        Subcase(
            "recovery_round",
            "Are the first drafts after a failed round from a complete context and their own reply?",
        ),
        Subcase("generations_grow", "Does a slot's generation only grow, and with every new owner?"),
        Subcase("old_generation_refused", "Is a reply of an old generation refused on every rank?"),
        Subcase("recovery_after_old_generation", "Do good drafts come again after it?"),
        Subcase(
            "uniform_broadcast",
            "Does every rank read the same words in every step, and hand over what they say?",
        ),
        Subcase("published_alike", "Do all ranks hand over the same drafts, local or remote?"),
    ),
    drive=drive,
    decide=decide,
    requests=PREFIX,
)
