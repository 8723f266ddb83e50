"""Blocks that differ, by how much and where; comparisons that nobody made."""

from collections.abc import Callable
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from qualification.checks.model import Found, Prompt
from qualification.checks.worker_equals_reference import CHECK
from synthetic_evidence import HARNESS, ON, Evidence, assert_flips, assert_not_seen, steps_of
from synthetic_parts import Platform

K = Platform().block
SHORT, LONG, TOGETHER = "equals.short", "equals.long", "equals.together.1"


def compared(pick: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda record: isinstance(record, seen.Drafter) and pick(record)


def differs(request: str, rejected: bool, **changes: Any) -> Callable[[Evidence], object]:
    """One block of a request, of a step that rejected rows or of one that did not."""

    def spoil(evidence: Evidence) -> object:
        step = next(
            step for step, entry in steps_of(evidence, ON, request) if (entry.valid < entry.kept) == rejected
        )
        return evidence.change(ON, 0, compared(lambda r: (r.step, r.request) == (step, request)), **changes)

    return spoil


OTHER = {"common": K - 1, "margin": 0.5}


def many_near_ties(evidence: Evidence) -> object:
    return evidence.change(ON, 0, compared(lambda record: record.step % 2 == 0), common=2, margin=5e-4)


def not_compared(evidence: Evidence) -> object:
    step = steps_of(evidence, ON, SHORT)[1][0]
    return evidence.drop(ON, 0, compared(lambda record: record.step == step))


def other_text(evidence: Evidence) -> object:
    return evidence.change(
        ON, HARNESS, lambda r: isinstance(r, seen.Completed) and r.request == LONG, text="a" * 32
    )


@pytest.mark.parametrize(
    ("subcase", "spoil"),
    [
        ("every_block_compared", not_compared),
        ("short_context", differs(SHORT, False, **OTHER)),
        ("short_context", differs(SHORT, False, drafted=K - 1, common=K - 1)),
        ("short_context", differs(SHORT, False, common=0, margin=-1.0)),
        ("long_context", differs(LONG, False, **OTHER)),
        ("after_rejected_rows", differs(SHORT, True, **OTHER)),
        ("together", differs(TOGETHER, True, **OTHER)),
        ("near_ties_are_few", many_near_ties),
        ("undisturbed", other_text),
    ],
)
def test_a_defect_fails_its_own_subcase_alone(subcase: str, spoil: Callable[[Evidence], object]) -> None:
    if subcase == "long_context":
        # Of a long prompt the last step is the first that drafts.
        def spoil(evidence: Evidence) -> object:
            steps = [step for step, entry in steps_of(evidence, ON, LONG) if entry.sampled]
            return evidence.change(ON, 0, compared(lambda record: record.step == steps[0]), **OTHER)

    assert_flips(Evidence(CHECK), spoil, subcase)


def test_a_near_tie_is_counted_apart_and_bounded_by_the_threshold() -> None:
    evidence = Evidence(CHECK)
    differs(SHORT, False, common=2, margin=1e-3)(evidence)
    assert Found.FAILED not in evidence.found().values()
    assert evidence.found(near_tie_share_max=0.0)["near_ties_are_few"] is Found.FAILED
    assert evidence.found(near_tie_margin=1e-4)["short_context"] is Found.FAILED


def test_what_did_not_occur_is_not_seen() -> None:
    def one_short(engine: Any) -> None:
        engine.submit(SHORT, Prompt(16, seed=1), 4)
        engine.run()

    assert_not_seen(Evidence(CHECK))
    few = Evidence(CHECK, Platform(accepts=(5,)), drive=one_short)
    assert_not_seen(few, "long_context", "after_rejected_rows", "together", "near_ties_are_few")


def test_a_block_from_a_partial_window_need_not_be_compared() -> None:
    evidence = Evidence(CHECK)
    step = steps_of(evidence, ON, SHORT)[1][0]
    not_compared(evidence)
    evidence.change_entry(
        ON, 0, lambda r: isinstance(r, seen.Exchanged) and r.step == step, SHORT, partial_window=True
    )
    assert evidence.found()["every_block_compared"] is Found.PASSED
