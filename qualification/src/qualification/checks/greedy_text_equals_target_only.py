"""Is greedy text, token for token, what the target alone says, whatever the worker drafts?

Compared by tags of whole texts.  Equal texts say nothing where nothing was drafted, so acceptances and rejections must
have been seen in the arm ON, and the arm OFF must be one that drafts nothing.
"""

from collections.abc import Mapping, Sequence

from ofl.contract import observation_v1 as seen

from qualification.checks._arms import ANY_DRAFTS, REMOTE, TARGET_ONLY
from qualification.checks._reading import ArmReading, read_pair
from qualification.checks._tally import Book, all_but
from qualification.checks.model import ArmObservations, Check, Conclusion, Engine, FaultOrder, Prompt, Subcase

PREFIX = "greedy."
NOBODY = "none"


def drive(engine: Engine) -> None:
    """Short and long prompts, alone and together, and one request with a round that fails."""
    budget = engine.facts.budget_tokens
    engine.submit(f"{PREFIX}short", Prompt(17, seed=705), 48)
    engine.run()
    engine.submit(f"{PREFIX}together.1", Prompt(12, seed=701), 48)
    engine.submit(f"{PREFIX}together.2", Prompt(31, seed=702), 48, at_step=3)
    engine.run()
    engine.submit(f"{PREFIX}long", Prompt(budget + budget // 3, seed=703), 48)
    engine.run()
    engine.fault(FaultOrder(f"{PREFIX}fails", "hold_reply", hold_steps=2))
    engine.submit(f"{PREFIX}fails", Prompt(40, seed=704), 48)
    engine.run()


def decide(off: ArmObservations, on: ArmObservations, _: Mapping[str, float]) -> Sequence[Conclusion]:
    """Text by text, by the circumstances of the arm ON."""
    left, right = read_pair(off, on, PREFIX)
    only = all_but(CHECK.subcases, *TEXTS) | {"target_alone": "OFF"}
    book = Book(CHECK.subcases, left, right, only)
    speculator = left.facts.speculator
    if left.completed:
        book.look("target_alone", left, not speculator, f"the arm drafts with {speculator}")
    for name in right.completed:
        subcase = _circumstance(right, name)
        for arm in (left, right):
            wrong = _text_differs(left.completed[name], right.completed[name])
            book.look(subcase, arm, not wrong, f"request {name}: {wrong}")
    _verified(book, right)
    return book.conclusions()


def _text_differs(off: seen.Completed, on: seen.Completed) -> str:
    """What is wrong with a pair of texts; empty where they are equal."""
    for done in (off, on):
        if done.finish not in ("length", "stop") or not done.output_tokens or done.text == seen.NO_TAG:
            return f"no whole text: {done.output_tokens} tokens, ended with {done.finish!r}"
    if off.output_tokens != on.output_tokens:
        return f"{on.output_tokens} tokens where the target alone says {off.output_tokens}"
    return "" if off.text == on.text else "another text than the target's alone"


def _circumstance(arm: ArmReading, name: str) -> str:
    """The subcase that a request's text is a case of: the first of these that holds."""
    steps = arm.of(name)
    held = {fault.step for fault in arm.faults("hold_reply", "held") if fault.request == name}
    if any(step.decided is not None and step.decided.reason for step, _ in steps if step.number in held):
        return "failed_round"
    if any(len(step.scheduled.requests) > 1 for step, _ in steps):
        return "together"
    return "long_prompt" if any(not entry.sampled for _, entry in steps) else "short_prompt"


def _verified(book: Book, arm: ArmReading) -> None:
    for step, entry in arm.entries():
        for verified in step.verified:
            if verified.request != entry.request or verified.source == NOBODY:
                continue  # zeros of a failed round, or padding, that the engine verified
            where = f"request {entry.request}, step {step.number}"
            possible = 0 <= verified.accepted <= verified.drafted and verified.source == "remote"
            wrong = f"{where}: {verified.accepted} of {verified.drafted} {verified.source} drafts accepted"
            if verified.accepted > 0:
                book.look("drafts_accepted", arm, possible, wrong)
            if verified.accepted < verified.drafted:
                book.look("drafts_rejected", arm, possible, wrong)


TEXTS = ("short_prompt", "long_prompt", "together", "failed_round")
CHECK = Check(
    name="greedy_text_equals_target_only",
    asks="Is greedy text with the worker, token for token, what the target alone says?",
    arm_variable=ANY_DRAFTS,
    off=TARGET_ONLY,
    on=REMOTE,
    subcases=(
        Subcase("target_alone", "Does nothing draft in the arm that is compared with?"),
        Subcase("short_prompt", "Is it so after a prompt of one step?"),
        Subcase("long_prompt", "Is it so after a prompt of several steps?"),
        Subcase("together", "Is it so where several requests share a step?"),
        Subcase("failed_round", "Is it so across a round that failed?"),
        Subcase("drafts_accepted", "Were drafts accepted, so that equal texts say something?"),
        Subcase("drafts_rejected", "Were drafts rejected, so that a wrong draft would have shown?"),
    ),
    drive=drive,
    decide=decide,
    requests=PREFIX,
)
