"""Are rows from a table server the very bytes of the local shards, and what happens where they do not come?

OFF reads the same rows of the same requests from the local shards alone.  Rows are compared by tags that the hooks made
of the staging's bytes; whether a server answered, by the reply that they saw there.
"""

from collections.abc import Mapping, Sequence

from ofl.contract import observation_v1 as seen

from qualification.checks._arms import TABLE_LOCAL, TABLE_REMOTE, WHOSE_ROWS
from qualification.checks._reading import ArmReading, read_pair
from qualification.checks._tables import TABLES, Pair, Span, pairs, spans, standings
from qualification.checks._tally import Book
from qualification.checks.model import (
    ArmObservations,
    Check,
    Conclusion,
    Engine,
    FaultOrder,
    Prompt,
    Subcase,
)

PREFIX = "tables."
GONE, STOOD, OTHERS = ("server_killed", "struck"), ("server_held", "held"), ("other_manifest", "struck")
"""Faults, and the moment at which each strikes."""
AWAY_STEPS = 3
LATE = ("late",)
LOST = ("lost", "not_connected")
"""Of a server that is gone: which one depends on when the client sees it."""


def drive(engine: Engine) -> None:
    """Rows of long, short and mixed batches, then a request for each thing that can happen to a server."""
    if TABLES not in engine.facts.capabilities:
        return
    engine.submit(f"{PREFIX}long", Prompt(engine.facts.budget_tokens + 40, seed=1301), 6)
    engine.submit(f"{PREFIX}short", Prompt(1, seed=1302), 12, at_step=2)
    engine.run()
    for seed, (action, _) in enumerate((GONE, STOOD, OTHERS), 1311):
        engine.fault(FaultOrder(f"{PREFIX}{action}", action, AWAY_STEPS))
        engine.submit(f"{PREFIX}{action}", Prompt(33, seed=seed), 12)
        engine.run()


def decide(off: ArmObservations, on: ArmObservations, _: Mapping[str, float]) -> Sequence[Conclusion]:
    """Each lookup of ON belongs to one subcase, by what there was to answer it."""
    arms = read_pair(off, on, PREFIX)
    book = Book(CHECK.subcases, *arms)
    found = pairs(*arms)
    foreign = [pair for pair in found if any(span.holds(pair.on.step) for span in spans(arms[1], *OTHERS))]
    others = [pair for pair in found if pair not in foreign]
    for pair in others:
        if pair.on.outcome == "remote":
            wrong = _differs(pair) or ("" if pair.on.replied else "remote rows without a reply")
            _look(book, "rows_exact", arms, pair, wrong)
    _fallback(book, arms, [pair for pair in others if pair.on.outcome != "remote"], found)
    _manifest(book, arms, foreign, found)
    return book.conclusions()


def _fallback(
    book: Book, arms: tuple[ArmReading, ArmReading], local: Sequence[Pair], found: Sequence[Pair]
) -> None:
    """Rows from the local shard in ON.  A server must have been gone, one late, and both there again."""
    gone, held = list(spans(arms[1], *GONE)), list(spans(arms[1], *STOOD))
    lost = [pair for pair in local if pair.on.reason in LOST and _any(gone, pair)]
    late = [pair for pair in local if pair.on.reason in LATE and _any(held, pair)]
    enough = bool(lost and late) and _came_back([*gone, *held], found)
    for pair in local:
        wrong = _differs(pair)
        if pair.on.outcome != "local":
            wrong = f"the outcome was {pair.on.outcome!r}: neither server nor shard gave rows"
        _look(book, "fallback_exact", arms, pair, wrong, enough)
    book.say("fallback_exact", f"{len(lost)} with the server gone, {len(late)} with a late reply")


def _manifest(
    book: Book, arms: tuple[ArmReading, ArmReading], foreign: Sequence[Pair], found: Sequence[Pair]
) -> None:
    """While there was only a server of another manifest: refused on every rank, and not one row came from it."""
    on = arms[1]
    strangers = list(spans(on, *OTHERS))
    refused = set[int]()
    for rank, opened in standings(on):
        if not any(span.holds(opened.step) for span in strangers):
            continue
        if opened.status == "open":
            where = f"step {opened.step}, rank {rank}"
            book.wrong("manifest_bound", on, f"{where}: a server of another manifest was opened")
        if opened.refused == "identity" and opened.offered not in ("", opened.identity):
            refused.add(rank)
    enough = len(refused) == len(on.ranks) and _came_back(strangers, found)
    for pair in foreign:
        wrong = _differs(pair)
        if pair.on.outcome == "remote" or pair.on.replied:
            wrong = "rows came from a server of another manifest"
        elif pair.on.outcome != "local":
            wrong = f"the outcome was {pair.on.outcome!r}"
        _look(book, "manifest_bound", arms, pair, wrong, enough)


def _differs(pair: Pair) -> str:
    """What is not as in OFF; empty where all is."""
    off, on = pair.off, pair.on
    if off.outcome != "local" or off.rows == seen.NO_TAG:
        return f"the local shards alone gave {off.outcome!r}"
    if off.ids != on.ids:
        return "other ids than in OFF"
    if off.out_of_shard != on.out_of_shard:
        return f"{on.out_of_shard} ids without a row, {off.out_of_shard} in OFF"
    return "" if off.rows == on.rows else "the rows are not those of the local shard"


def _any(where: Sequence[Span], pair: Pair) -> bool:
    """Whether a lookup is its owner's, from a fault's first step to when it was over."""
    return any(span.hit(pair.on.step) and pair.on.requests == (span.request,) for span in where)


def _came_back(where: Sequence[Span], found: Sequence[Pair]) -> bool:
    """Whether each fault's owner had remote rows on every rank once it was over."""
    ranks = {pair.rank for pair in found}
    return bool(where) and all(
        ranks
        == {
            pair.rank
            for pair in found
            if pair.on.requests == (span.request,)
            and pair.on.step >= span.end
            and pair.on.outcome == "remote"
        }
        for span in where
    )


def _look(
    book: Book,
    subcase: str,
    arms: tuple[ArmReading, ArmReading],
    pair: Pair,
    wrong: str,
    enough: bool = True,
) -> None:
    """A pair of lookups was looked at.  enough: whether what the subcase is about happened; wrong is told anyway."""
    if wrong:
        book.wrong(subcase, arms[1], f"{pair.where}: {wrong}")
    if enough:
        for arm in arms:
            book.look(subcase, arm, True, "")


CHECK = Check(
    name="table_rows_exact_and_fallback",
    asks="Are remote table rows exact, and does the engine fall back without a wrong row?",
    arm_variable=WHOSE_ROWS,
    off=TABLE_LOCAL,
    on=TABLE_REMOTE,
    subcases=(
        Subcase("rows_exact", "Is each row from the server equal to the local table's?", needs=TABLES),
        Subcase(
            "fallback_exact", "Are rows equal where the server was gone, and where it was late?", needs=TABLES
        ),
        Subcase(
            "manifest_bound",
            "Is a server of another manifest refused, with not one row from it?",
            needs=TABLES,
        ),
    ),
    drive=drive,
    decide=decide,
    requests=PREFIX,
)
