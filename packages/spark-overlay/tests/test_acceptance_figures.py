"""Acceptance by position and by context length, and the alarm where nothing is accepted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.acceptance import DRAFTS_MAX, Acceptance, AcceptanceAlarm


def test_acceptance_by_position_counts_only_positions_that_were_drafted() -> None:
    acceptance = Acceptance()
    acceptance.record(3, 3, 10)
    acceptance.record(1, 5, 10)
    acceptance.record(0, 0, 10)
    acceptance.record(9, 2, 10)
    summary = acceptance.summary()
    assert summary["verified"] == 3
    assert (summary["accepted"], summary["drafted"]) == (6, 10)
    assert summary["accepted_per_round"] == 2.0
    assert summary["accepted_by_position"] == [3, 2, 1, 0, 0]
    assert summary["drafted_by_position"] == [3, 3, 2, 1, 1]
    assert summary["rate_by_position"] == [1.0, 0.6667, 0.5, 0.0, 0.0]


def test_acceptance_by_context_shows_a_decay_that_the_total_hides() -> None:
    acceptance = Acceptance()
    for position in (0, 1, 512, 1023):
        acceptance.record(4, 5, position)
    for position in (1024, 2047):
        acceptance.record(1, 5, position)
    assert json.loads(json.dumps(acceptance.summary()))["by_context"] == [
        {"from": 0, "below": 1, "verified": 1, "accepted": 4, "drafted": 5, "accepted_per_round": 4.0},
        {"from": 1, "below": 2, "verified": 1, "accepted": 4, "drafted": 5, "accepted_per_round": 4.0},
        {"from": 512, "below": 1024, "verified": 2, "accepted": 8, "drafted": 10, "accepted_per_round": 4.0},
        {"from": 1024, "below": 2048, "verified": 2, "accepted": 2, "drafted": 10, "accepted_per_round": 1.0},
    ]


@given(
    st.lists(
        st.tuples(st.integers(-5, 10_000), st.integers(-5, 10_000), st.integers(-(1 << 40), 1 << 40)),
        max_size=50,
    )
)
def test_whatever_is_recorded_the_figures_are_bounded_and_add_up(calls: list[tuple[int, int, int]]) -> None:
    acceptance = Acceptance()
    for accepted, drafted, position in calls:
        acceptance.record(accepted, drafted, position)
    summary = json.loads(json.dumps(acceptance.summary(), allow_nan=False))
    assert len(summary["rate_by_position"]) <= DRAFTS_MAX
    assert len(summary["by_context"]) <= 33
    for name in ("verified", "accepted", "drafted"):
        assert sum(bucket[name] for bucket in summary["by_context"]) == summary[name]
    assert sum(summary["accepted_by_position"]) == summary["accepted"]
    assert all(0.0 <= rate <= 1.0 for rate in summary["rate_by_position"])


def said(alarm: AcceptanceAlarm, accepted: list[int]) -> list[int]:
    """Indices at which it spoke."""
    return [index for index, count in enumerate(accepted) if alarm.note(count) is not None]


def test_the_alarm_speaks_once_at_the_round_that_is_one_too_many() -> None:
    alarm = AcceptanceAlarm(3)
    assert said(alarm, [0] * 20) == [2]
    assert alarm.active


def test_one_accepted_draft_begins_the_count_again() -> None:
    alarm = AcceptanceAlarm(3)
    assert said(alarm, [0, 0, 1, 0, 0]) == []
    assert not alarm.active


def test_the_alarm_speaks_again_only_after_a_recovery() -> None:
    alarm = AcceptanceAlarm(3)
    assert said(alarm, [0] * 10 + [1] + [0] * 10) == [2, 13]
    alarm.note(1)
    assert not alarm.active


def test_the_sentence_gives_the_count_and_where_to_look() -> None:
    sentence = AcceptanceAlarm(1).note(0)
    assert sentence is not None
    assert "in the last 1 verified rounds" in sentence
    assert "by_context" in sentence


@pytest.mark.parametrize("rounds", [1, 1000])
def test_zero_turns_the_alarm_off(rounds: int) -> None:
    assert said(AcceptanceAlarm(0), [0] * rounds) == []
