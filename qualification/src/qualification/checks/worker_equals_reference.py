"""Does the worker draft what the reference drafter drafts, from one state, block by block?

The shadow arm compares inside the engine.  Where the worker's best logit led by next to nothing, another order of sums
may pick the other token: such ties are counted apart and bounded, never dropped.
"""

from collections.abc import Iterator, Mapping, Sequence

from ofl.contract import observation_v1 as seen

from qualification.checks._arms import LOCAL, SHADOW
from qualification.checks._context import got_drafts
from qualification.checks._reading import ArmReading, Step, read_pair
from qualification.checks._tally import Book, all_but
from qualification.checks.model import ArmObservations, Check, Conclusion, Engine, Prompt, Subcase

PREFIX = "equals."
NEAR_TIE_MARGIN = "near_tie_margin"
NEAR_TIE_SHARE_MAX = "near_tie_share_max"
BLOCKS_MIN = "blocks_min"


def drive(engine: Engine) -> None:
    """A short context, one longer than a step, and several at once."""
    budget = engine.facts.budget_tokens
    engine.submit(f"{PREFIX}short", Prompt(16, seed=601), 32)
    engine.run()
    engine.submit(f"{PREFIX}long", Prompt(budget + budget // 4, seed=602), 32)
    engine.run()
    for number in (1, 2, 3):
        engine.submit(f"{PREFIX}together.{number}", Prompt(20 + 9 * number, seed=602 + number), 32)
    engine.run()


def decide(
    off: ArmObservations, on: ArmObservations, thresholds: Mapping[str, float]
) -> Sequence[Conclusion]:
    """Each block that could be compared, by the circumstances it was drafted in."""
    left, right = read_pair(off, on, PREFIX)
    book = Book(CHECK.subcases, left, right, all_but(CHECK.subcases, "undisturbed"))
    ties = blocks = 0
    for step, entry, compared in _blocks(book, right):
        blocks += 1
        tie, wrong = _differs(compared, right.facts, thresholds[NEAR_TIE_MARGIN])
        ties += tie
        book.look(_circumstance(step, entry, right.facts.budget_tokens), right, not wrong, wrong)
    if blocks >= thresholds[BLOCKS_MIN]:
        share = ties / blocks
        wrong = f"{ties} near ties in {blocks} blocks"
        book.look("near_ties_are_few", right, share <= thresholds[NEAR_TIE_SHARE_MAX], wrong, count=blocks)
        book.say("near_ties_are_few", wrong)
    for arm in (left, right):
        for name, done in arm.completed.items():
            same = done.text == left.completed[name].text != seen.NO_TAG
            book.look("undisturbed", arm, same, f"request {name}: another text than in OFF")
    return book.conclusions()


def _blocks(book: Book, arm: ArmReading) -> Iterator[tuple[Step, seen.ScheduledRequest, seen.Drafter]]:
    """Each comparison of a request that got remote drafts; one that lacks its comparison is told."""
    for step, entry in arm.entries():
        found = [compared for compared in step.compared if compared.request == entry.request]
        where = f"request {entry.request}, step {step.number}"
        if len(found) > 1:
            book.wrong("every_block_compared", arm, f"{where}: compared {len(found)} times")
        if got_drafts(step, entry.request) and _comparable(step, entry.request, arm.facts.block_length):
            book.look("every_block_compared", arm, len(found) == 1, f"{where}: drafts that nobody compared")
        if len(found) == 1:
            yield step, entry, found[0]


def _comparable(step: Step, request: str, block: int) -> bool:
    """Whether a whole block was drafted from a whole window: what the reference drafts too."""
    return any(
        slot.n_out == block and not slot.partial_window
        for exchanged in step.exchanged
        for slot in exchanged.slots
        if slot.request == request and slot.need_draft
    )


def _differs(compared: seen.Drafter, facts: seen.Facts, margin_max: float) -> tuple[bool, str]:
    """Whether two blocks differ by a near tie alone, and what is wrong otherwise."""
    where = f"request {compared.request}, step {compared.step}"
    if not 0 <= compared.common <= compared.drafted or compared.drafted != facts.block_length:
        return (
            False,
            f"{where}: {compared.common} of {compared.drafted} where a block has {facts.block_length}",
        )
    if compared.common == compared.drafted:
        return False, ""
    if 0 <= compared.margin <= margin_max:
        return True, ""
    return False, f"{where}: differs at draft {compared.common + 1} by a margin of {compared.margin:.3g}"


def _circumstance(step: Step, entry: seen.ScheduledRequest, budget: int) -> str:
    """The subcase that a block is a case of: the first of these that holds."""
    if len(step.scheduled.requests) > 1:
        return "together"
    if entry.valid < entry.kept:
        return "after_rejected_rows"
    return "long_context" if entry.first_position + entry.valid > budget else "short_context"


CHECK = Check(
    name="worker_equals_reference",
    asks="Does the worker draft what the reference drafter drafts from the same state?",
    arm_variable="whether the remote worker drafts beside the engine's own drafter (ON) or not (OFF)",
    off=LOCAL,
    on=SHADOW,
    subcases=(
        Subcase(
            "every_block_compared", "Was every block compared that both drafters drafted from a whole window?"
        ),
        Subcase("short_context", "Are blocks equal in contexts that one step may read?"),
        Subcase("long_context", "Are blocks equal in longer contexts?"),
        Subcase("after_rejected_rows", "Are blocks equal in steps that rejected rows?"),
        Subcase("together", "Are blocks equal where several requests share a step?"),
        Subcase("near_ties_are_few", "Are blocks that differ by a near tie as few as the threshold says?"),
        Subcase("undisturbed", "Is every request's text what it is without the worker?"),
    ),
    drive=drive,
    decide=decide,
    thresholds={NEAR_TIE_MARGIN: 1e-3, NEAR_TIE_SHARE_MAX: 0.05, BLOCKS_MIN: 20.0},
    requests=PREFIX,
)
