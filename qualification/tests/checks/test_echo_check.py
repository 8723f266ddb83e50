"""Replies that name something else, ranks that read other words, and old generations that get through."""

from collections.abc import Callable
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from qualification.checks.model import Found
from qualification.checks.step_generation_echo_and_uniform_broadcast import CHECK
from synthetic_evidence import OFF, ON, Evidence, assert_flips, assert_not_seen, of_step, steps_of

NORMAL, FAILS, OLD = "echo.normal.1", "echo.fails", "echo.old"


def good_steps(evidence: Evidence, request: str) -> list[int]:
    """Steps in which a request got drafts."""
    return [
        record.step
        for record in evidence.records(ON)
        if isinstance(record, seen.Decided)
        for entry in record.requests
        if entry.request == request and entry.outcome == "OK"
    ]


def fault_step(evidence: Evidence, moment: str, action: str) -> int:
    return next(
        record.step
        for record in evidence.records(ON)
        if isinstance(record, seen.Fault) and (record.moment, record.action) == (moment, action)
    )


def held_step(evidence: Evidence) -> int:
    return fault_step(evidence, "held", "hold_reply")


def struck_step(evidence: Evidence) -> int:
    return fault_step(evidence, "struck", "old_generation")


def slot_in(step_of: Callable[[Evidence], int], request: str, **changes: Any) -> Callable[[Evidence], object]:
    return lambda evidence: evidence.change_entry(
        ON, 0, of_step(seen.Exchanged, step_of(evidence)), request, **changes
    )


def a_good_step(evidence: Evidence) -> int:
    return good_steps(evidence, NORMAL)[2]


def after(step_of: Callable[[Evidence], int], request: str) -> Callable[[Evidence], int]:
    return lambda evidence: next(step for step in good_steps(evidence, request) if step > step_of(evidence))


def message_in(step_of: Callable[[Evidence], int], **changes: Any) -> Callable[[Evidence], object]:
    return lambda evidence: evidence.change(ON, 0, of_step(seen.Exchanged, step_of(evidence)), **changes)


def words_in(
    step_of: Callable[[Evidence], int], request: str, **changes: Any
) -> Callable[[Evidence], object]:
    """The same change on both ranks: they still agree."""

    def spoil(evidence: Evidence) -> None:
        for rank in (0, 1):
            evidence.change_entry(ON, rank, of_step(seen.Decided, step_of(evidence)), request, **changes)

    return spoil


def older_generation(evidence: Evidence) -> object:
    """The last message of a request goes back to a generation before it, with all rows."""
    step, entry = steps_of(evidence, ON, NORMAL)[-1]
    return evidence.change_entry(
        ON,
        0,
        of_step(seen.Exchanged, step),
        NORMAL,
        generation=0,
        generation_echoed=0,
        reset=True,
        first_position=0,
        n_rows=entry.first_position + entry.valid,
    )


def old_drafts_used(evidence: Evidence) -> None:
    """Both ranks take the drafts of the reply with the old generation."""
    step = struck_step(evidence)
    for rank in (0, 1):
        evidence.change(ON, rank, of_step(seen.Decided, step), reason="")
        evidence.change_entry(ON, rank, of_step(seen.Decided, step), OLD, outcome="OK", drafts="d" * 32)
        evidence.change(ON, rank, of_step(seen.Published, step), drafts=("d" * 32,))


def other_words_on_rank_1(evidence: Evidence) -> object:
    step = a_good_step(evidence)
    return evidence.change_entry(ON, 1, of_step(seen.Decided, step), NORMAL, confidences="c" * 32)


def other_drafts_on_rank_1_of_off(evidence: Evidence) -> object:
    step = steps_of(evidence, OFF, NORMAL)[-1][0]
    return evidence.change(
        OFF, 1, of_step(seen.Published, step), drafts=lambda r: ("e" * 32,) * len(r.drafts)
    )


@pytest.mark.parametrize(
    ("subcase", "spoil"),
    [
        ("normal_round", slot_in(a_good_step, NORMAL, generation_echoed=98)),
        ("normal_round", slot_in(a_good_step, NORMAL, status="GAP")),
        ("normal_round", slot_in(a_good_step, NORMAL, drafts="b" * 32)),
        ("normal_round", message_in(a_good_step, round_echoed=1)),
        ("normal_round", message_in(a_good_step, epoch_echoed=1)),
        ("normal_round", message_in(a_good_step, reply="late")),
        ("failed_round", words_in(held_step, FAILS, outcome="RESYNC_PENDING")),
        ("recovery_round", slot_in(after(held_step, FAILS), FAILS, held_from=3)),
        ("recovery_round", slot_in(after(held_step, FAILS), FAILS, generation_echoed=98)),
        ("generations_grow", older_generation),
        ("old_generation_refused", old_drafts_used),
        ("recovery_after_old_generation", slot_in(after(struck_step, OLD), OLD, held_from=3)),
        ("uniform_broadcast", other_words_on_rank_1),
        ("published_alike", other_drafts_on_rank_1_of_off),
    ],
)
def test_a_defect_fails_its_own_subcase_alone(subcase: str, spoil: Callable[[Evidence], object]) -> None:
    assert_flips(Evidence(CHECK), spoil, subcase)


def test_what_leaves_must_be_what_the_words_say() -> None:
    evidence = Evidence(CHECK)
    step = held_step(evidence)
    for rank in (0, 1):
        evidence.change(ON, rank, of_step(seen.Published, step), drafts=("a" * 32,))
    assert evidence.found()["uniform_broadcast"] is Found.FAILED


def test_without_its_faults_neither_failed_nor_old_rounds_are_seen() -> None:
    quiet = Evidence(CHECK)
    quiet.drop(ON, 0, lambda record: isinstance(record, seen.Fault) and record.action == "old_generation")
    assert_not_seen(quiet, "old_generation_refused", "recovery_after_old_generation")
    undisturbed = Evidence(CHECK, drive=_undisturbed)
    assert_not_seen(
        undisturbed,
        "failed_round",
        "recovery_round",
        "old_generation_refused",
        "recovery_after_old_generation",
    )


def test_an_injection_that_changed_nothing_is_not_seen() -> None:
    evidence = Evidence(CHECK)
    step = struck_step(evidence)
    evidence.change_entry(
        ON, 0, of_step(seen.Exchanged, step), OLD, generation_echoed=lambda slot: slot.generation
    )
    assert evidence.found()["old_generation_refused"] is Found.NOT_SEEN


def _undisturbed(engine: Any) -> None:
    from qualification.checks.model import Prompt

    engine.submit(NORMAL, Prompt(48, seed=1), 24)
    engine.run()
