"""Are as many drafts accepted with the worker as with the engine's own drafter, at every prompt length?

A worker that loses part of a long context still drafts, only worse: texts stay right and only this shows it.  Prompts
are sorted by their length against what one step may schedule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks._reading import ArmReading, read_pair
from qualification.checks._tally import Book, all_but
from qualification.checks.model import ArmObservations, Check, Conclusion, Engine, Prompt, Subcase

PREFIX = "acceptance."
SHORT, MIDDLE, LONG = BUCKETS = ("below_half_a_step", "up_to_one_step", "beyond_one_step")
DROP_MAX, DRAFTED_MIN, DRAFTING_SHARE_MIN = "drop_max", "drafted_min", "drafting_share_min"
SOURCES = {"OFF": "local", "ON": "remote"}


def drive(engine: Engine) -> None:
    """Two prompts of each length, together, with enough text for a rate."""
    budget = engine.facts.budget_tokens
    for number, length in enumerate((budget // 4, budget - 8, budget + budget // 2), 1):
        for copy in (1, 2):
            engine.submit(f"{PREFIX}{number}.{copy}", Prompt(length, seed=800 + 2 * number + copy), 48)
        engine.run()


@dataclass
class Rate:
    """Drafts of one arm and bucket."""

    accepted: int = 0
    drafted: int = 0

    @property
    def value(self) -> float:
        """0 .. 1; 0 where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0


def bucket_of(prompt_tokens: int, budget_tokens: int) -> str:
    """The subcase that a prompt belongs to."""
    if 2 * prompt_tokens < budget_tokens:
        return SHORT
    return MIDDLE if prompt_tokens <= budget_tokens else LONG


def decide(
    off: ArmObservations, on: ArmObservations, thresholds: Mapping[str, float]
) -> Sequence[Conclusion]:
    """Rates of both arms, bucket by bucket."""
    left, right = read_pair(off, on, PREFIX)
    book = Book(CHECK.subcases, left, right, all_but(CHECK.subcases, *BUCKETS))
    budget = left.facts.budget_tokens
    rates = {arm.word: _rates(book, arm, budget) for arm in (left, right)}
    for bucket in BUCKETS:
        own, remote = rates["OFF"][bucket], rates["ON"][bucket]
        # A reference that accepts no more than may be lost would let any worker pass.
        if min(own.drafted, remote.drafted) < thresholds[DRAFTED_MIN] or own.value <= max(
            0.0, thresholds[DROP_MAX]
        ):
            continue
        right_enough = remote.value >= own.value - thresholds[DROP_MAX]
        wrong = f"{bucket}: {remote.value:.3f} of the drafts accepted, {own.value:.3f} of the engine's own"
        for arm in (left, right):
            book.look(bucket, arm, right_enough, wrong, count=rates[arm.word][bucket].drafted)
        book.say(bucket, f"accepted {own.value:.3f} of the drafts in OFF, {remote.value:.3f} in ON")
    _drafting(book, right, thresholds[DRAFTING_SHARE_MIN])
    return book.conclusions()


def _rates(book: Book, arm: ArmReading, budget: int) -> dict[str, Rate]:
    rates = {bucket: Rate() for bucket in BUCKETS}
    for step, entry in arm.entries():
        for verified in step.verified:
            if verified.request != entry.request or verified.source != SOURCES[arm.word]:
                continue
            bucket = bucket_of(arm.completed[entry.request].prompt_tokens, budget)
            if not 0 <= verified.accepted <= verified.drafted:
                where = f"request {entry.request}, step {step.number}"
                book.wrong(bucket, arm, f"{where}: {verified.accepted} of {verified.drafted} drafts accepted")
            rates[bucket].accepted += verified.accepted
            rates[bucket].drafted += verified.drafted
    return rates


def _drafting(book: Book, arm: ArmReading, share_min: float) -> None:
    """Rates leave failed rounds out, so that rounds do not fail must be seen beside them."""
    outcomes = [
        decision.outcome
        for step, entry in arm.entries()
        if entry.sampled
        and (decision := step.decision(entry.request)) is not None
        and decision.outcome != "NO_DRAFT"
    ]
    if outcomes:
        share = outcomes.count("OK") / len(outcomes)
        wrong = f"{share:.3f} of {len(outcomes)} wishes for drafts were met"
        book.look("rounds_succeed", arm, share >= share_min, wrong, count=len(outcomes))
        book.say("rounds_succeed", f"{share:.3f} of the wishes for drafts were met")


CHECK = Check(
    name="acceptance_holds_over_prompt_length",
    asks="Are as many drafts accepted as with the engine's own drafter, at every prompt length?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        Subcase(SHORT, "Is it so for prompts below half of what a step may schedule?"),
        Subcase(MIDDLE, "Is it so for prompts up to what a step may schedule?"),
        Subcase(LONG, "Is it so for prompts that take several steps?"),
        Subcase("rounds_succeed", "Are wishes for drafts met as often as the threshold says?"),
    ),
    drive=drive,
    decide=decide,
    thresholds={DROP_MAX: 0.05, DRAFTED_MIN: 40.0, DRAFTING_SHARE_MIN: 0.9},
    requests=PREFIX,
)
