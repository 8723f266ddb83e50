"""Last steps of prompts whose message is not what the check asks for, and platforms on which they do not occur."""

from collections.abc import Callable
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from qualification.checks.final_need_draft_real_complete import CHECK
from qualification.checks.model import Found
from synthetic_evidence import OFF, ON, Evidence, assert_flips, assert_not_seen, of_step, steps_of
from synthetic_parts import Platform

TRIMS = Platform(trims=True, window=16, capabilities=("row_reduction",))
K = Platform().block


def final_step(evidence: Evidence, request: str, arm: str = ON) -> int:
    return next(step for step, entry in steps_of(evidence, arm, request) if entry.sampled)


def message(tail: int, **changes: Any) -> Callable[[Evidence], object]:
    """A defect in the message of the last step of a prompt."""

    def spoil(evidence: Evidence) -> object:
        request = f"final.tail{tail}.1"
        step = final_step(evidence, request)
        return evidence.change_entry(ON, 0, of_step(seen.Exchanged, step), request, **changes)

    return spoil


def whole_message(tail: int, **changes: Any) -> Callable[[Evidence], object]:
    def spoil(evidence: Evidence) -> object:
        step = final_step(evidence, f"final.tail{tail}.2")
        return evidence.change(ON, 0, of_step(seen.Exchanged, step), **changes)

    return spoil


@pytest.mark.parametrize("tail", [1, 127, 128, 129])
@pytest.mark.parametrize(
    "changes",
    [
        {"need_draft": False},
        {"partial_window": True},
        {"n_out": K - 1},
        {"first_position": lambda slot: slot.first_position + 1},
        {"n_rows": lambda slot: slot.n_rows - 1},
        {"rows": seen.NO_TAG},
        {"status": "GAP"},
        {"held_from": 1},
        {"held_from": -1},
        {"reset": True},
        {"generation": 99},
    ],
    ids=str,
)
def test_a_message_that_is_not_complete_fails_its_tail_alone(tail: int, changes: dict[str, Any]) -> None:
    assert_flips(Evidence(CHECK), message(tail, **changes), f"tail_{tail}")


@pytest.mark.parametrize(
    "changes", [{"awaited": False}, {"reply": "late"}, {"round_echoed": 1}, {"epoch_echoed": 1}]
)
def test_a_reply_of_another_round_fails_its_tail_alone(changes: dict[str, Any]) -> None:
    assert_flips(Evidence(CHECK), whole_message(128, **changes), "tail_128")


def test_rows_that_are_the_same_in_two_prompts_are_not_real() -> None:
    def zeros(evidence: Evidence) -> None:
        for copy in (1, 2):
            request = f"final.tail127.{copy}"
            step = final_step(evidence, request)
            evidence.change_entry(ON, 0, of_step(seen.Exchanged, step), request, rows="0" * 32)

    assert_flips(Evidence(CHECK), zeros, "tail_127")


def test_no_drafts_after_the_last_step_fail_in_either_arm() -> None:
    def nothing_decided(evidence: Evidence) -> None:
        step = final_step(evidence, "final.tail1.1")
        evidence.change_entry(ON, 0, of_step(seen.Decided, step), "final.tail1.1", outcome="GAP")

    def nothing_left(evidence: Evidence) -> None:
        step = final_step(evidence, "final.tail1.1", OFF)
        evidence.change(OFF, 0, of_step(seen.Published, step), drafts=(seen.NO_TAG,))

    assert_flips(Evidence(CHECK), nothing_decided, "tail_1")
    assert_flips(Evidence(CHECK), nothing_left, "tail_1")


@pytest.mark.parametrize("record", ["decided", "published", "exchanged"])
def test_a_step_before_the_last_that_wants_drafts_fails_middle_chunks_alone(record: str) -> None:
    def spoil(evidence: Evidence) -> None:
        request = "final.tail129.1"
        step = final_step(evidence, request) - 1
        if record == "decided":
            evidence.change_entry(ON, 0, of_step(seen.Decided, step), request, outcome="OK")
        elif record == "published":
            evidence.change(ON, 0, of_step(seen.Published, step), drafts=("a" * 32,))
        else:
            evidence.change_entry(ON, 0, of_step(seen.Exchanged, step), request, n_out=K)

    assert_flips(Evidence(CHECK), spoil, "middle_chunks")


def test_a_trimmed_row_that_is_sent_fails_row_reduction_alone() -> None:
    def more(slot: Any) -> int:
        return int(slot.first_position - 4)

    spoil = message(128, first_position=more, n_rows=lambda slot: slot.n_rows + 4)
    assert_flips(Evidence(CHECK, TRIMS), spoil, "row_reduction")


def test_a_tail_that_no_step_had_is_not_seen() -> None:
    assert_not_seen(Evidence(CHECK), "row_reduction")
    assert_not_seen(Evidence(CHECK, TRIMS))
    small = Platform(budget=64)
    assert_not_seen(Evidence(CHECK, small), "tail_127", "tail_128", "tail_129", "row_reduction")


def test_a_round_that_failed_shows_nothing_of_its_tail() -> None:
    evidence = Evidence(CHECK)
    for copy in (1, 2):
        request = f"final.tail128.{copy}"
        step = final_step(evidence, request)
        evidence.change(ON, 0, of_step(seen.Decided, step), reason="timeout")
        evidence.change(ON, 0, of_step(seen.Published, step), drafts=(seen.NO_TAG,))
    assert evidence.found()["tail_128"] is Found.NOT_SEEN
