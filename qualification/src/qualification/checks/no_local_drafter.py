"""Is there no local drafter, in memory or in effect, where the remote one serves?

The arm OFF shows that the hooks see one where there is one.  A setting, a flag or an environment says nothing: what
counts is what the engine's ranks hold, and whose drafts leave, also when a round fails.
"""

from collections.abc import Mapping, Sequence

from ofl.contract import observation_v1 as seen

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks._context import Messages, got_drafts
from qualification.checks._reading import ArmReading, RankReading, read_pair
from qualification.checks._tally import Book, all_but
from qualification.checks.model import ArmObservations, Check, Conclusion, Engine, FaultOrder, Prompt, Subcase

PREFIX = "nolocal."
ENGINES_OWN = "vllm."


def drive(engine: Engine) -> None:
    """Ordinary requests, then one with a round that fails: there a local drafter would stand in."""
    engine.submit(f"{PREFIX}plain.1", Prompt(40, seed=501), 32)
    engine.submit(f"{PREFIX}plain.2", Prompt(64, seed=502), 32)
    engine.run()
    engine.fault(FaultOrder(f"{PREFIX}fails", "hold_reply", hold_steps=2))
    engine.submit(f"{PREFIX}fails", Prompt(40, seed=503), 48)
    engine.run()


def decide(off: ArmObservations, on: ArmObservations, _: Mapping[str, float]) -> Sequence[Conclusion]:
    """Facts of every rank, and every draft that left."""
    left, right = read_pair(off, on, PREFIX)
    book = Book(CHECK.subcases, left, right, all_but(CHECK.subcases) | {"hooks_see_one": "OFF"})
    _control(book, left)
    for rank, reading in enumerate(right.ranks):
        if right.steps(rank):
            _holds_none(book, right, left, rank, reading.facts)
        _published(book, right, rank, reading)
    _progress(book, right)
    return book.conclusions()


def _control(book: Book, arm: ArmReading) -> None:
    for rank, reading in enumerate(arm.ranks):
        facts = reading.facts
        left = any(any(step.published.drafts) for step in arm.steps(rank) if step.published is not None)
        if left:
            there = facts.draft_parameters > 0 and facts.draft_layers > 0
            book.look(
                "hooks_see_one",
                arm,
                there,
                f"rank {rank}: drafts left, of a drafter that the hooks do not see",
            )


def _holds_none(book: Book, arm: ArmReading, off: ArmReading, rank: int, facts: seen.Facts) -> None:
    parameters, layers = facts.draft_parameters, facts.draft_layers
    book.look(
        "no_parameters", arm, parameters == 0, f"rank {rank} holds {parameters} parameters of a drafter"
    )
    book.look("no_layers", arm, layers == 0, f"rank {rank} registered {layers} attention layers of a drafter")
    place = f"{facts.speculator_module}.{facts.speculator}"
    other = (facts.speculator_module, facts.speculator) != (off.facts.speculator_module, off.facts.speculator)
    remote = bool(facts.speculator) and other and not place.startswith(ENGINES_OWN)
    book.look("speculator_is_remote", arm, remote, f"rank {rank} drafts with {place}")


def _published(book: Book, arm: ArmReading, rank: int, reading: RankReading) -> None:
    """Every draft that left is one that rank 0's words hold for the request, and is called remote."""
    for step, entry in arm.entries(rank):
        where = f"request {entry.request}, step {step.number}, rank {rank}"
        decision, tag = step.decision(entry.request), step.handed_over(entry.request)
        if decision is None or step.decided is None:
            book.wrong("no_local_drafts", arm, f"{where}: no words about it")
        elif decision.outcome == "OK":
            right = step.decided.source == "remote" and tag == decision.drafts
            book.look("no_local_drafts", arm, right, f"{where}: drafts of source {step.decided.source} left")
        elif decision.outcome != "NO_DRAFT":
            where = f"{where} ({decision.outcome})"
            book.look(
                "nothing_stands_in", arm, tag == seen.NO_TAG, f"{where}: drafts left although none came"
            )
        elif tag != seen.NO_TAG:
            book.wrong("no_local_drafts", arm, f"{where}: drafts left although none were asked")
    for step in arm.steps(rank):
        if step.compared:
            book.wrong("no_local_drafts", arm, f"step {step.number}, rank {rank}: two drafters were compared")


def _progress(book: Book, arm: ArmReading) -> None:
    messages = Messages(arm)
    for step, entry in arm.entries():
        if got_drafts(step, entry.request):
            wrong = messages.not_backed(step, entry.request)
            book.look("remote_progress", arm, not wrong, wrong)
        for verified in step.verified:
            if verified.request == entry.request and verified.source == "local":
                where = f"request {entry.request}, step {step.number}"
                book.wrong(
                    "no_local_drafts", arm, f"{where}: drafts of source {verified.source} were verified"
                )


CHECK = Check(
    name="no_local_drafter",
    asks="Is there no local drafter where the remote one serves, in memory or in effect?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        Subcase("hooks_see_one", "Do the same hooks see a local drafter where there is one (OFF)?"),
        Subcase("no_parameters", "Does no rank hold parameters of a drafter?"),
        Subcase("no_layers", "Did no rank register attention layers of a drafter?"),
        Subcase("speculator_is_remote", "Is what drafts the overlay's class, not the engine's own?"),
        Subcase("no_local_drafts", "Is every draft that left one of the worker's?"),
        Subcase("nothing_stands_in", "Does nothing leave for a request whose round failed?"),
        Subcase("remote_progress", "Do rounds with the worker go on meanwhile?"),
    ),
    drive=drive,
    decide=decide,
    requests=PREFIX,
)
