"""Do both ranks schedule, keep, place and own the very same rows of the very same requests?

Compared are what each rank itself holds when drafting begins, entry by entry; rank 0's word is not enough.  q is what
the engine scheduled, so a prompt that is alone and longer than a step fixes it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from ofl.contract import observation_v1 as seen

from qualification.checks._arms import LOCAL_2, REMOTE_2, WHOSE_DRAFTS
from qualification.checks._reading import ArmReading, Step, read_pair
from qualification.checks._tally import Book
from qualification.checks.model import ArmObservations, Check, Conclusion, Engine, Prompt, Subcase

PREFIX = "agreement."
Entry = seen.ScheduledRequest


def drive(engine: Engine) -> None:
    """A prompt alone over several steps; a prompt that joins one that decodes; a slot used again after a cancel."""
    budget = engine.facts.budget_tokens
    engine.submit(f"{PREFIX}solo", Prompt(budget + budget // 2, seed=101), 12)
    engine.run()
    engine.submit(f"{PREFIX}peer", Prompt(24, seed=102), 48)
    engine.submit(f"{PREFIX}joins", Prompt(budget + 7, seed=103), 16, at_step=4)
    engine.run()
    engine.submit(f"{PREFIX}cancelled", Prompt(40, seed=104), 64)
    engine.cancel(f"{PREFIX}cancelled", after_tokens=6)
    engine.run()
    engine.submit(f"{PREFIX}next", Prompt(33, seed=105), 12)
    engine.run()


def decide(off: ArmObservations, on: ArmObservations, _: Mapping[str, float]) -> Sequence[Conclusion]:
    """Entry by entry in both arms."""
    arms = read_pair(off, on, PREFIX)
    book = Book(CHECK.subcases, *arms)
    for arm in arms:
        _steps(book, arm)
        _continuity(book, arm)
        _owners(book, arm)
    return book.conclusions()


def _steps(book: Book, arm: ArmReading) -> None:
    ranks = arm.ranks
    for rank, reading in enumerate(ranks[1:], 1):
        missing = len(ranks[0].steps) - len(reading.steps)
        if missing:
            book.wrong(
                "same_steps",
                arm,
                f"rank {rank} took {len(reading.steps)} steps and rank 0 {len(ranks[0].steps)}",
            )
    for step in arm.steps():
        for rank, reading in enumerate(ranks[1:], 1):
            other = reading.steps.get(step.number)
            if other is not None:
                _compare(book, arm, rank, step, other)


def _compare(book: Book, arm: ArmReading, rank: int, step: Step, other: Step) -> None:
    names, others = ([entry.request for entry in each.scheduled.requests] for each in (step, other))
    where = f"step {step.number}, rank {rank}"
    book.look("same_steps", arm, names == others, f"{where}: requests {others} where rank 0 has {names}")
    mine = [entry for entry in step.scheduled.requests if arm.mine(entry.request)]
    pairs = [(entry, theirs) for entry in mine if (theirs := other.request(entry.request)) is not None]
    mixed = any(entry.verified for entry in mine) and any(not entry.sampled for entry in mine)
    for entry, theirs in pairs:
        for subcase in (*_asked_of(entry, theirs), *(("mixed_step",) if mixed else ())):
            own, got = FIELDS[subcase](entry), FIELDS[subcase](theirs)
            book.look(
                subcase, arm, own == got, f"request {entry.request}, {where}: {got} where rank 0 has {own}"
            )


FIELDS: Mapping[str, Callable[[Entry], object]] = {
    "q": lambda entry: entry.q,
    "kept": lambda entry: entry.kept,
    "position": lambda entry: entry.first_position,
    "valid": lambda entry: entry.valid,
    "anchor": lambda entry: entry.anchor,
    "owner": lambda entry: (entry.slot, entry.life),
    "rejected_rows": lambda entry: (entry.valid, entry.verified, entry.sampled),
    "mixed_step": lambda entry: (entry.verified, entry.sampled),
    "row_reduction": lambda entry: (entry.kept, entry.first_position, entry.valid),
}


def _asked_of(entry: Entry, theirs: Entry) -> Iterator[str]:
    """Subcases that a pair of entries is a case of; rows that were trimmed or rejected have one of their own."""
    yield "q"
    yield "owner"
    if entry.sampled or theirs.sampled:
        yield "anchor"
    if entry.kept < entry.q or theirs.kept < theirs.q:
        yield "row_reduction"
        return
    yield "kept"
    yield "position"
    rejected = entry.valid < entry.kept or theirs.valid < theirs.kept
    yield "rejected_rows" if rejected else "valid"


def _continuity(book: Book, arm: ArmReading) -> None:
    """Each rank by itself: counts that fit each other, positions that go on where the step before ended."""
    for rank in range(len(arm.ranks)):
        ends: dict[tuple[str, int, int], int] = {}
        for step, entry in arm.entries(rank):
            where = f"request {entry.request}, step {step.number}, rank {rank}"
            rejected = max(0, entry.verified + 1 - entry.sampled) if entry.sampled else 0
            if not 0 < entry.kept <= entry.q:
                book.wrong("kept", arm, f"{where}: {entry.kept} rows kept of {entry.q}")
            if entry.valid != entry.kept - rejected or entry.valid < 1:
                book.wrong(
                    "valid",
                    arm,
                    f"{where}: {entry.valid} of {entry.kept} rows valid with {rejected} rejected",
                )
            if (entry.anchor != seen.NO_TAG) != (entry.sampled > 0):
                book.wrong(
                    "anchor", arm, f"{where}: {entry.sampled} tokens sampled, anchor {entry.anchor or 'none'}"
                )
            start, life = (
                entry.first_position - (entry.q - entry.kept),
                (entry.request, entry.slot, entry.life),
            )
            if start < 0 or ends.get(life, start) != start:
                book.wrong("position", arm, f"{where}: begins at {start} where {ends.get(life, 0)} follows")
            ends[life] = entry.first_position + entry.valid
            if len(step.scheduled.requests) == 1 and not entry.sampled:
                _solo(book, arm, entry, where)


def _solo(book: Book, arm: ArmReading, entry: Entry, where: str) -> None:
    """A prompt that is alone and goes on: what a whole step is."""
    budget = arm.facts.budget_tokens
    if entry.q >= budget:
        book.look(
            "solo_q", arm, entry.q == budget, f"{where}: {entry.q} tokens where a step has {budget} at most"
        )


def _owners(book: Book, arm: ArmReading) -> None:
    """A life is one request in one slot; a slot that changes hands begins a new one."""
    for rank, reading in enumerate(arm.ranks):
        held: dict[int, Entry] = {}
        for step in reading.steps.values():
            where = f"step {step.number}, rank {rank}"
            slots = [entry.slot for entry in step.scheduled.requests]
            if len(set(slots)) != len(slots):
                book.wrong("owner", arm, f"{where}: two requests share a slot")
            for entry in step.scheduled.requests:
                before = held.get(entry.slot)
                held[entry.slot] = entry
                if before is not None and before.request != entry.request and arm.mine(entry.request):
                    told = f"request {entry.request}, {where}: still the life of {before.request}"
                    book.look("slot_reuse", arm, before.life != entry.life, told)


CHECK = Check(
    name="rank_q_kept_position_valid_anchor_owner_agreement",
    asks="Do all ranks hold the same rows of the same requests, step by step?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL_2,
    on=REMOTE_2,
    subcases=(
        Subcase(
            "same_steps",
            "Does every real step reach the drafter on every rank, with the same requests in order?",
        ),
        Subcase("q", "Are the scheduled tokens of each request the same?"),
        Subcase("kept", "Are the rows that the target kept the same, and no more than were scheduled?"),
        Subcase(
            "position", "Is the first valid row's position the same, and does it follow the step before?"
        ),
        Subcase("valid", "Are valid rows the same, and kept ones less rejected ones?"),
        Subcase("anchor", "Is the anchor the same token, and there exactly where one was sampled?"),
        Subcase("owner", "Is each request in the same slot, in the same life, and alone there?"),
        Subcase("slot_reuse", "Is a slot's next request another life on every rank?"),
        Subcase("rejected_rows", "Do ranks agree where drafts were rejected?"),
        Subcase("mixed_step", "Do ranks agree where prompts are read and drafts verified in one step?"),
        Subcase("solo_q", "Is a prompt that is alone and goes on scheduled one whole step?"),
        Subcase(
            "row_reduction",
            "Do ranks agree where the target keeps fewer rows than scheduled?",
            "row_reduction",
        ),
    ),
    drive=drive,
    decide=decide,
    requests=PREFIX,
)
