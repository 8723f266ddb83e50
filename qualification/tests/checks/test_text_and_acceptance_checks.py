"""Texts that differ from the target's, and drafts that are accepted less often than the engine's own."""

from collections.abc import Callable
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from qualification.checks import acceptance_holds_over_prompt_length as acceptance
from qualification.checks import greedy_text_equals_target_only as greedy
from qualification.checks.model import Found, Prompt
from synthetic_evidence import HARNESS, OFF, ON, Evidence, assert_flips, assert_not_seen, steps_of
from synthetic_parts import Platform

Spoil = Callable[[Evidence], object]
TEXTS = {
    "short_prompt": "greedy.short",
    "long_prompt": "greedy.long",
    "together": "greedy.together.2",
    "failed_round": "greedy.fails",
}


def completed(arm: str, request: str, **changes: Any) -> Spoil:
    return lambda evidence: evidence.change(
        arm, HARNESS, lambda r: isinstance(r, seen.Completed) and r.request == request, **changes
    )


def verified(pick: Callable[[Any], bool], arm: str = ON, **changes: Any) -> Spoil:
    return lambda evidence: evidence.change(
        arm, 0, lambda record: isinstance(record, seen.Verified) and pick(record), **changes
    )


@pytest.mark.parametrize("subcase", TEXTS)
@pytest.mark.parametrize(
    "changes",
    [{"text": "a" * 32}, {"output_tokens": 47}, {"finish": "error"}, {"text": seen.NO_TAG}],
    ids=str,
)
def test_another_text_fails_its_own_subcase_alone(subcase: str, changes: dict[str, Any]) -> None:
    assert_flips(Evidence(greedy.CHECK), completed(ON, TEXTS[subcase], **changes), subcase)


def test_two_texts_that_are_both_missing_are_not_equal() -> None:
    def neither(evidence: Evidence) -> None:
        for arm in (OFF, ON):
            completed(arm, "greedy.long", text=seen.NO_TAG)(evidence)

    assert_flips(Evidence(greedy.CHECK), neither, "long_prompt")


@pytest.mark.parametrize(
    ("subcase", "spoil"),
    [
        ("target_alone", lambda e: e.change(OFF, 0, lambda r: isinstance(r, seen.Facts), speculator="Eagle")),
        ("drafts_accepted", verified(lambda r: r.accepted == r.drafted, source="local")),
        ("drafts_rejected", verified(lambda r: r.accepted == 0, source="local")),
        ("drafts_rejected", verified(lambda r: r.accepted == 0, accepted=-1)),
    ],
)
def test_a_defect_beside_the_texts_fails_its_own_subcase_alone(subcase: str, spoil: Spoil) -> None:
    assert_flips(Evidence(greedy.CHECK), spoil, subcase)


def test_equal_texts_say_nothing_where_no_draft_was_accepted_or_rejected() -> None:
    assert_not_seen(Evidence(greedy.CHECK))
    assert_not_seen(Evidence(greedy.CHECK, Platform(accepts=(0,))), "drafts_accepted")
    assert_not_seen(Evidence(greedy.CHECK, Platform(accepts=(5,))), "drafts_rejected")
    padding = Evidence(greedy.CHECK)
    verified(lambda r: r.accepted == 0, source="none")(padding)
    verified(lambda r: 0 < r.accepted < r.drafted, source="none")(padding)
    assert_not_seen(padding, "drafts_rejected")


def test_texts_of_other_circumstances_are_not_seen() -> None:
    def short(engine: Any) -> None:
        engine.submit("greedy.short", Prompt(17, seed=1), 48)
        engine.run()

    assert_not_seen(Evidence(greedy.CHECK, drive=short), "long_prompt", "together", "failed_round")


def fewer(bucket: str) -> Spoil:
    """The worker's drafts of one bucket are accepted half as often."""
    number = 1 + acceptance.BUCKETS.index(bucket)
    return verified(
        lambda record: record.request.startswith(f"acceptance.{number}."), accepted=lambda r: r.accepted // 2
    )


@pytest.mark.parametrize("bucket", acceptance.BUCKETS)
def test_a_rate_that_drops_fails_its_bucket_alone(bucket: str) -> None:
    assert_flips(Evidence(acceptance.CHECK), fewer(bucket), bucket)
    assert_flips(
        Evidence(acceptance.CHECK),
        verified(lambda r: r.request == "acceptance.1.1", accepted=9),
        "below_half_a_step",
    )


def test_rounds_that_fail_too_often_fail_though_rates_hold() -> None:
    def failing(evidence: Evidence) -> None:
        steps = [step for step, _ in steps_of(evidence, ON, "acceptance.2.1")]
        evidence.change(
            ON,
            0,
            lambda record: isinstance(record, seen.Decided) and record.step in steps,
            requests=lambda record: tuple(
                seen.DecidedRequest(entry.request, "ROUND_FAILED", seen.NO_TAG, seen.NO_TAG)
                for entry in record.requests
            ),
        )

    assert_flips(Evidence(acceptance.CHECK), failing, "rounds_succeed")


def test_too_few_drafts_or_none_accepted_are_no_rate() -> None:
    assert_not_seen(Evidence(acceptance.CHECK))
    assert_not_seen(Evidence(acceptance.CHECK, Platform(accepts=(0,))), *acceptance.BUCKETS)
    found = Evidence(acceptance.CHECK).found(drafted_min=10_000.0)
    assert [found[bucket] for bucket in acceptance.BUCKETS] == [Found.NOT_SEEN] * 3


def test_a_reference_that_accepts_no_more_than_may_be_lost_is_none() -> None:
    """Else a worker of which nothing is accepted would pass beside it."""
    seldom = Evidence(acceptance.CHECK, Platform(accepts=(0, 0, 0, 0, 0, 1)))
    assert seldom.found(drop_max=0.0)["beyond_one_step"] is Found.PASSED
    verified(lambda record: True, accepted=0)(seldom)
    assert_not_seen(seldom, *acceptance.BUCKETS)
    assert seldom.found(drop_max=0.0)["beyond_one_step"] is Found.FAILED


def test_drafts_of_another_source_count_for_neither_arm() -> None:
    evidence = Evidence(acceptance.CHECK)
    verified(lambda record: True, source="local")(evidence)
    assert_not_seen(evidence, *acceptance.BUCKETS)


def test_a_drop_within_the_threshold_passes_and_a_policy_may_tighten_it() -> None:
    evidence = Evidence(acceptance.CHECK)
    first = next(
        r for r in evidence.records(ON) if isinstance(r, seen.Verified) and r.request == "acceptance.3.1"
    )
    verified(lambda r: r == first, accepted=max(0, first.accepted - 1))(evidence)
    assert evidence.found()["beyond_one_step"] is Found.PASSED
    assert evidence.found(drop_max=0.0)["beyond_one_step"] is Found.FAILED
