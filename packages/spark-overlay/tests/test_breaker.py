"""The circuit breaker: every transition, and what of a round counts as an attempt."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.round import reasons
from spark_overlay.round.breaker import TRANSITIONS, Breaker, Event, State, judge
from spark_overlay.round.counters import Counters
from spark_overlay.round.messages import Outcome, RoundResult

FAILED_ATTEMPTS = {reasons.TIMEOUT, reasons.TRANSPORT_ERROR, reasons.BAD_REPLY}
NO_ATTEMPTS = {
    reasons.NOT_READY,
    reasons.DISABLED,
    reasons.PAUSED,
    reasons.RECONNECTED,
    reasons.COOLDOWN,
    reasons.INTERNAL_ERROR,
}


def result(*outcomes: Outcome, reason: str = "") -> RoundResult:
    count = len(outcomes)
    values = np.array(outcomes, np.int32)
    return RoundResult(
        drafts=np.zeros((count, 4), np.int32),
        confidences=np.zeros((count, 4), np.float32),
        margins=np.zeros((count, 4), np.float32),
        partial=np.zeros(count, np.bool_),
        ok=np.equal(values, Outcome.OK),
        outcomes=values,
        reason=reason,
    )


def make(trip: int = 3, cooldown: int = 4) -> Breaker:
    return Breaker(trip, cooldown, Counters())


def opened(trip: int = 3, cooldown: int = 4) -> Breaker:
    breaker = make(trip, cooldown)
    breaker.new_session(1)
    for _ in range(trip):
        breaker.note(False)
    assert breaker.state is State.OPEN
    return breaker


def state_of(breaker: Breaker) -> State:
    """Now; what an assertion said of the attribute would be taken for true of it later too."""
    return breaker.state


def half_open(trip: int = 3, cooldown: int = 4) -> Breaker:
    breaker = opened(trip, cooldown)
    for _ in range(cooldown):
        assert not breaker.admit()
    assert breaker.state is State.HALF_OPEN
    return breaker


def counts(breaker: Breaker) -> tuple[int, int]:
    return breaker._counters.breaker_trips, breaker._counters.breaker_recoveries


# --- what counts ---


@pytest.mark.parametrize("reason", reasons.ALL)
def test_every_reason_of_a_failed_round_either_counts_or_does_not(reason: str) -> None:
    failed = result(Outcome.ROUND_FAILED, reason=reason)
    counts_as_failed = reason in FAILED_ATTEMPTS or reason.startswith("frame_")
    assert counts_as_failed != (reason in NO_ATTEMPTS), "each reason is of one kind"
    assert judge(failed, attempted=True) is (False if counts_as_failed else None)
    assert judge(failed, attempted=False) is None


OURS = (
    Outcome.NO_DRAFT,
    Outcome.NO_CONTEXT,
    Outcome.RESYNC_PENDING,
    Outcome.BAD_REQUEST,
    Outcome.UNCONFIRMED,
)
WORKERS = (Outcome.STALE_GENERATION, Outcome.NEEDS_RESET, Outcome.GAP, Outcome.DRAFTER)


def test_every_outcome_is_of_one_kind() -> None:
    assert {*OURS, *WORKERS, Outcome.OK, Outcome.ROUND_FAILED} == set(Outcome)


@pytest.mark.parametrize("outcome", OURS)
def test_wishes_withheld_on_our_side_say_nothing_of_the_worker(outcome: Outcome) -> None:
    assert judge(result(outcome, outcome), attempted=True) is None


@pytest.mark.parametrize("outcome", WORKERS)
def test_a_step_of_which_the_worker_refused_every_request_is_a_failed_attempt(outcome: Outcome) -> None:
    assert judge(result(outcome, Outcome.DRAFTER), attempted=True) is False
    assert judge(result(outcome, Outcome.NO_DRAFT, Outcome.RESYNC_PENDING), attempted=True) is False


@pytest.mark.parametrize("other", [outcome for outcome in Outcome if outcome is not Outcome.ROUND_FAILED])
def test_a_step_of_which_some_request_got_drafts_is_a_success(other: Outcome) -> None:
    assert judge(result(other, Outcome.OK), attempted=True) is True


def test_drafts_that_came_but_were_not_used_make_a_step_neither() -> None:
    assert judge(result(Outcome.UNCONFIRMED, Outcome.DRAFTER), attempted=True) is None


def test_a_round_without_requests_says_nothing() -> None:
    assert judge(result(), attempted=True) is None


# --- transitions ---


def test_the_table_holds_every_transition_but_the_impossible_ones() -> None:
    impossible = {
        (State.CLOSED, Event.COOLED),
        (State.OPEN, Event.SUCCEEDED),
        (State.OPEN, Event.FAILED),
        (State.OPEN, Event.TRIPPED),
        (State.HALF_OPEN, Event.COOLED),
        (State.HALF_OPEN, Event.FAILED),
    }
    assert set(TRANSITIONS) == set(product(State, Event)) - impossible


def test_it_opens_after_as_many_failures_in_a_row_as_were_set() -> None:
    breaker = make(trip=3)
    assert [breaker.note(False), breaker.note(False)] == [None, None]
    assert breaker.admit()
    assert breaker.note(False) is State.OPEN
    assert breaker.summary() == {
        "state": "open",
        "consecutive_failures": 3,
        "cooldown_left": 4,
        "trips": 1,
        "trip": 3,
        "cooldown": 4,
    }


def test_a_success_between_begins_the_count_again_and_a_round_that_says_nothing_does_not() -> None:
    breaker = make(trip=2)
    for succeeded in (False, True, False, None, None):
        assert breaker.note(succeeded) is None
    assert breaker.failures == 1
    assert breaker.note(False) is State.OPEN


def test_an_open_breaker_keeps_exactly_the_cooldown_off_the_network() -> None:
    breaker = opened(cooldown=4)
    assert [breaker.admit() for _ in range(6)] == [False] * 4 + [True] * 2


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker = half_open()
    assert breaker.note(True) is State.CLOSED
    assert counts(breaker) == (1, 1)
    assert (breaker.failures, breaker.cooldown_left) == (0, 0)
    assert breaker.note(False) is None, "and the count begins again"


def test_a_probe_that_fails_opens_it_for_a_whole_cooldown_again() -> None:
    breaker = half_open(trip=3, cooldown=4)
    assert breaker.note(False) is State.OPEN
    assert [breaker.admit() for _ in range(5)] == [False] * 4 + [True]
    assert counts(breaker) == (1, 0), "it left closed once"


def test_a_round_that_says_nothing_does_not_use_up_the_probe() -> None:
    breaker = half_open()
    for _ in range(10):
        assert breaker.admit()
        assert breaker.note(None) is None
    assert breaker.note(True) is State.CLOSED


def test_zero_turns_it_off() -> None:
    breaker = make(trip=0)
    for _ in range(1000):
        assert breaker.admit()
        assert breaker.note(False) is None
    assert breaker.state is State.CLOSED
    assert breaker.summary()["trip"] == 0


# --- sessions ---


@pytest.mark.parametrize("prepared", [opened, half_open])
def test_a_reconnect_to_the_same_life_changes_nothing(prepared: Callable[[], Breaker]) -> None:
    breaker = prepared()
    before = breaker.summary()
    breaker.new_session(1)
    assert breaker.summary() == before


def test_failures_in_a_row_outlive_a_session_and_a_life() -> None:
    breaker = make(trip=3)
    for life in (1, 2, 3):
        breaker.new_session(life)
        breaker.note(False)
    assert breaker.state is State.OPEN, "a worker that dies of every STEP is not asked for ever"


def test_another_life_of_the_worker_is_probed_at_once() -> None:
    breaker = opened(cooldown=100)
    breaker.new_session(2)
    assert breaker.state is State.HALF_OPEN
    assert breaker.admit()
    assert breaker.note(True) is State.CLOSED


def test_a_worker_with_many_lives_ends_a_cooldown_early_only_once() -> None:
    breaker = opened(trip=1, cooldown=4)
    breaker.new_session(2)
    breaker.note(False)
    breaker.new_session(3)
    assert state_of(breaker) is State.OPEN
    assert [breaker.admit() for _ in range(4)] == [False] * 4
    breaker.note(False)
    breaker.new_session(4)
    assert state_of(breaker) is State.HALF_OPEN, "a cooldown ran out since"


def test_another_life_while_half_open_does_not_earn_a_second_early_end() -> None:
    breaker = opened(trip=1, cooldown=4)
    breaker.new_session(2)
    breaker.new_session(3)
    breaker.note(False)
    breaker.new_session(4)
    assert breaker.state is State.OPEN


# --- any sequence ---


@given(
    trip=st.integers(0, 4),
    cooldown=st.integers(1, 6),
    rounds=st.lists(st.one_of(st.sampled_from([True, False, None]), st.integers(1, 3)), max_size=120),
)
def test_whatever_happens_the_network_is_spared_and_the_figures_agree(
    trip: int, cooldown: int, rounds: list[bool | int | None]
) -> None:
    """A number (not a bool) is a session with the life of that number; everything else a round that ends so."""
    breaker = make(trip, cooldown)
    failed_in_a_row = skipped_in_a_row = 0
    for step in rounds:
        if step is not None and not isinstance(step, bool):
            breaker.new_session(step)
            skipped_in_a_row = 0
            continue
        if breaker.admit():
            skipped_in_a_row = 0
            breaker.note(step)
            failed_in_a_row = {True: 0, False: failed_in_a_row + 1, None: failed_in_a_row}[step]
        else:
            skipped_in_a_row += 1
        trips, recoveries = counts(breaker)
        assert trips - recoveries == (breaker.state is not State.CLOSED)
        assert breaker.failures == (failed_in_a_row if trip else 0)
        assert skipped_in_a_row <= cooldown
        assert (breaker.cooldown_left > 0) == (breaker.state is State.OPEN)
        if trip:
            assert (breaker.failures < trip) == (breaker.state is State.CLOSED)
