"""Do both ranks schedule, keep, place and own the very same rows of the very same requests?

Compared are what each rank itself holds when drafting begins, entry by entry; rank 0's word is not enough.  q is what
the engine scheduled, so a prompt that is alone and longer than a step fixes it.
"""

from collections.abc import Callable, Mapping, Sequence

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
    engine.submit(f"{PREFIX}joins", Prompt(budget // 2 + 7, seed=103), 16, at_step=4)
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
    for entry in mine:
        theirs = other.request(entry.request)
        if theirs is not None:
            for subcase, of in FIELDS.items():
                if _applies(subcase, entry):
                    same = of(entry) == of(theirs)
                    book.look(
                        subcase, arm, same, f"request {entry.request}, {where}: {of(theirs)}, not {of(entry)}"
                    )
    if any(entry.sampled and entry.verified for entry in mine) and any(not entry.sampled for entry in mine):
        book.look(
            "mixed_step", arm, mine == [other.request(entry.request) for entry in mine], f"{where}: differs"
        )
    if len(step.scheduled.requests) == 1 and mine and mine[0].q == arm.facts.budget_tokens:
        theirs = other.request(mine[0].request)
        right = theirs is not None and theirs.q == mine[0].q
        book.look(
            "solo_q", arm, right, f"{where}: a prompt alone is scheduled {mine[0].q} tokens on rank 0 only"
        )


FIELDS: Mapping[str, Callable[[Entry], object]] = {
    "q": lambda entry: entry.q,
    "kept": lambda entry: entry.kept,
    "position": lambda entry: entry.first_position,
    "valid": lambda entry: (entry.valid, entry.sampled, entry.verified),
    "anchor": lambda entry: entry.anchor,
    "owner": lambda entry: (entry.slot, entry.life),
    "rejected_rows": lambda entry: (entry.valid, entry.first_position),
    "row_reduction": lambda entry: (entry.q, entry.kept, entry.first_position),
}


def _applies(subcase: str, entry: Entry) -> bool:
    """Whether an entry is a case of what a subcase asks."""
    if subcase == "anchor":
        return entry.sampled > 0
    if subcase == "rejected_rows":
        return entry.valid < entry.kept
    return subcase != "row_reduction" or entry.kept < entry.q


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


def _owners(book: Book, arm: ArmReading) -> None:
    """A life is one request in one slot; a slot that changes hands begins a new one."""
    for rank in range(len(arm.ranks)):
        lives: dict[tuple[int, int], str] = {}
        for step in arm.ranks[rank].steps.values():
            slots = [entry.slot for entry in step.scheduled.requests]
            if len(set(slots)) != len(slots):
                book.wrong("owner", arm, f"step {step.number}, rank {rank}: two requests share a slot")
            for entry in step.scheduled.requests:
                name = entry.request
                if lives.setdefault((entry.slot, entry.life), name) != name:
                    other = lives[entry.slot, entry.life]
                    book.wrong(
                        "owner", arm, f"request {name}, step {step.number}, rank {rank}: the life of {other}"
                    )
        _reuse(book, arm, rank, lives)


def _reuse(book: Book, arm: ArmReading, rank: int, lives: Mapping[tuple[int, int], str]) -> None:
    """A slot that two requests of this check had, one after the other."""
    by_slot: dict[int, list[str]] = {}
    for (slot, _), name in lives.items():
        by_slot.setdefault(slot, []).append(name)
    for slot, names in by_slot.items():
        if len(set(names)) > 1 and any(arm.mine(name) for name in names):
            theirs = {life: name for (place, life), name in lives.items() if place == slot}
            same = all(
                entry.slot != slot or theirs.get(entry.life) == entry.request for _, entry in arm.entries(0)
            )
            book.look("slot_reuse", arm, same, f"slot {slot}: rank {rank} counts its lives unlike rank 0")


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
        Subcase("valid", "Are valid rows the same, and kept rows less rejected ones?"),
        Subcase("anchor", "Is the anchor the same token, and there exactly where one was sampled?"),
        Subcase("owner", "Is each request in the same slot, in the same life, and alone there?"),
        Subcase("slot_reuse", "Is a slot's next request another life on every rank?"),
        Subcase("rejected_rows", "Do ranks agree where drafts were rejected?"),
        Subcase("mixed_step", "Do ranks agree where prompts are read and drafts verified in one step?"),
        Subcase("solo_q", "Is a prompt that is alone scheduled a whole step on every rank?"),
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
