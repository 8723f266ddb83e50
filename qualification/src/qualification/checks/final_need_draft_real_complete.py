"""Does the last step of a prompt ask for drafts from rows that are real and a context that is complete?

Prompts end 1, 127, 128 or 129 tokens after a whole step: around the edges at which rows are trimmed or cut.  Each is
there twice, so that rows that are not real (zeros, or another request's) show as equal tags.
"""

from collections.abc import Mapping, Sequence

from ofl.contract import observation_v1 as seen
from ofl.contract.dspark_v1.rules import first_needed

from qualification.checks._arms import LOCAL, REMOTE, WHOSE_DRAFTS
from qualification.checks._context import Messages, Sent, echoed, got_drafts
from qualification.checks._reading import ArmReading, Step, read_pair
from qualification.checks._tally import Book
from qualification.checks.model import ArmObservations, Check, Conclusion, Engine, Prompt, Subcase

PREFIX = "final."
TAILS = (1, 127, 128, 129)


def drive(engine: Engine) -> None:
    """Each tail twice, one request at a time: alone, so that the last step's length is the tail."""
    budget = engine.facts.budget_tokens
    for tail in TAILS:
        for copy in (1, 2):
            engine.submit(f"{PREFIX}tail{tail}.{copy}", Prompt(budget + tail, seed=200 + 2 * tail + copy), 6)
            engine.run()


def decide(off: ArmObservations, on: ArmObservations, _: Mapping[str, float]) -> Sequence[Conclusion]:
    """The last step of each prompt in both arms; what was sent, in the arm that sends."""
    arms = read_pair(off, on, PREFIX)
    book = Book(CHECK.subcases, *arms, only={"middle_chunks": "ON"})
    for arm in arms:
        messages = Messages(arm)
        for name in arm.completed:
            _request(book, arm, name, messages if arm.word == "ON" else None)
    _rows_differ(book, arms[1])
    return book.conclusions()


def _request(book: Book, arm: ArmReading, name: str, messages: Messages | None) -> None:
    """messages: None where nothing is sent."""
    budget, prompt = arm.facts.budget_tokens, arm.completed[name].prompt_tokens
    final = next(((step, entry) for step, entry in arm.of(name) if entry.sampled), None)
    if final is None:
        return
    step, entry = final
    if messages is not None:
        _middle(book, arm, name, step.number, messages)
    tail = prompt - budget
    if tail not in TAILS or entry.q != tail:
        return  # the engine cut this prompt elsewhere: that tail was not seen
    if step.decided is not None and step.decided.reason and step.handed_over(name) == seen.NO_TAG:
        return  # that round failed, which is another check's matter: what this one asks was not seen
    if messages is None:
        wrong = _local(step, entry, prompt)
    else:
        wrong = _remote(arm, step, entry, prompt, messages.awaited(step, name))
    told = f"request {name}, step {step.number}: {wrong}"
    book.look(f"tail_{tail}", arm, not wrong, told)
    if entry.kept < entry.q:
        _trimmed(book, arm, step, entry, messages)


def _trimmed(
    book: Book, arm: ArmReading, step: Step, entry: seen.ScheduledRequest, messages: Messages | None
) -> None:
    """Rows that the target did not keep are never sent."""
    sent = messages.of(entry.request) if messages is not None else ()
    firsts = [each.slot.first_position for each in sent if each.exchanged.step == step.number]
    where = f"request {entry.request}, step {step.number}"
    right = min(firsts, default=entry.first_position) >= entry.first_position
    book.look(
        "row_reduction", arm, right, f"{where}: rows before {entry.first_position} were sent and not kept"
    )


def _local(step: Step, entry: seen.ScheduledRequest, prompt: int) -> str:
    """What is wrong with the last step where the engine itself drafts."""
    if entry.first_position + entry.valid != prompt:
        return f"its rows end at {entry.first_position + entry.valid} where the prompt ends at {prompt}"
    return "" if step.handed_over(entry.request) != seen.NO_TAG else "no drafts left"


def _remote(arm: ArmReading, step: Step, entry: seen.ScheduledRequest, prompt: int, sent: Sent | None) -> str:
    """What is wrong with the last step and the message that it led to."""
    facts = arm.facts
    end = entry.first_position + entry.valid
    if sent is None:
        return "no single message asks for drafts"
    exchanged, slot = sent.exchanged, sent.slot
    needed = first_needed(facts.window, end)
    for right, wrong in (
        (end == prompt, f"its rows end at {end} where the prompt ends at {prompt}"),
        (sent.end == end, f"rows were sent up to {sent.end} where the step's end at {end}"),
        (not sent.wrong, sent.wrong),
        (sent.start <= needed, f"rows were sent from {sent.start} on where the window begins at {needed}"),
        (not slot.partial_window, "the window is called partial"),
        (slot.n_rows > 0, "the message holds no row"),
        (
            slot.n_out == facts.block_length,
            f"{slot.n_out} drafts asked where a block has {facts.block_length}",
        ),
        (
            exchanged.reply == "in time" and echoed(exchanged),
            f"the reply was {exchanged.reply!r} or of another round",
        ),
        (slot.status == "OK", f"the reply says {slot.status or 'nothing'}"),
        (0 <= slot.held_from <= needed, f"the worker's window begins at {slot.held_from}, {needed} is whole"),
        (got_drafts(step, entry.request), "the step decided on no drafts"),
    ):
        if not right:
            return wrong
    return ""


def _middle(book: Book, arm: ArmReading, name: str, final: int, messages: Messages) -> None:
    """Steps before the last one keep the context and ask for nothing."""
    asked = {sent.exchanged.step for sent in messages.of(name) if sent.slot.need_draft or sent.slot.n_out}
    for step, _ in arm.of(name):
        if step.number < final:
            decision = step.decision(name)
            quiet = decision is not None and decision.outcome == "NO_DRAFT" and step.number not in asked
            nothing = step.handed_over(name) == seen.NO_TAG
            book.look(
                "middle_chunks",
                arm,
                quiet and nothing,
                f"request {name}, step {step.number}: asked for drafts",
            )


def _rows_differ(book: Book, arm: ArmReading) -> None:
    """Rows of two places are never the same bytes, so equal tags are of rows that are not real."""
    places: dict[str, tuple[str, int]] = {}
    for exchanged in arm.ranks[0].exchanges:
        for slot in exchanged.slots:
            if slot.rows == seen.NO_TAG or not arm.mine(slot.request):
                continue
            place = (slot.request, slot.first_position)
            if places.setdefault(slot.rows, place) != place:
                tail = slot.request.removeprefix(PREFIX + "tail").partition(".")[0]
                other = places[slot.rows]
                where = f"request {slot.request}, step {exchanged.step}"
                book.wrong(f"tail_{tail}", arm, f"{where}: the same rows as {other[0]} at {other[1]}")


CHECK = Check(
    name="final_need_draft_real_complete",
    asks="Does the last step of a prompt ask for drafts from real rows and a complete context?",
    arm_variable=WHOSE_DRAFTS,
    off=LOCAL,
    on=REMOTE,
    subcases=(
        *(
            Subcase(f"tail_{tail}", f"Is it so where the last step of a prompt reads {tail} of its tokens?")
            for tail in TAILS
        ),
        Subcase("middle_chunks", "Do the steps before it keep the context and ask for nothing?"),
        Subcase("row_reduction", "Are rows that the target did not keep never sent?", "row_reduction"),
    ),
    drive=drive,
    decide=decide,
    requests=PREFIX,
)
