"""The window's limits, on a clock that the test moves."""

import math

import pytest
from qualification.runs.window import Limits, Window, WindowError


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def window(clock: Clock) -> Window:
    return Window(Limits(submit_s=75, hard_s=90, checkpoint_s=50), clock)


def test_the_defaults_are_75_and_90_minutes_and_900_seconds() -> None:
    assert Limits() == Limits(75 * 60, 90 * 60, 900)


@pytest.mark.parametrize(
    "limits",
    [
        (91, 90, 9),
        (0, 90, 9),
        (-1, 90, 9),
        (75, 90, 0),
        (75, math.nan, 9),
        (math.nan, 90, 9),
        (75, math.inf, 9),
        (75, 604_801, 9),
        (75, 90, math.inf),
        (75, 90, math.nan),
    ],
)
def test_limits_that_contradict_each_other_are_refused(limits: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Limits(*limits)


def test_cases_begin_until_the_submission_deadline(window: Window, clock: Clock) -> None:
    clock.now_s = 1074.9
    assert window.takes_cases
    clock.now_s = 1075.0
    assert not window.takes_cases


def test_nothing_is_waited_for_past_the_hard_bound(window: Window, clock: Clock) -> None:
    clock.now_s = 1045.0
    window.checkpoint()
    assert window.left_s(500) == 45
    assert window.left_s(3) == 3
    clock.now_s = 1090.0
    with pytest.raises(WindowError, match="hard bound, 90 s"):
        window.left_s(3)


def test_a_stretch_between_checkpoints_has_its_own_limit(window: Window, clock: Clock) -> None:
    clock.now_s = 1049.0
    assert window.left_s(500) == 1
    window.checkpoint()
    assert window.left_s(500) == 41  # the hard bound
    clock.now_s = 1051.0
    assert window.left_s(500) == 39
    late = Window(Limits(75, 90, 10), clock)
    clock.now_s += 10
    with pytest.raises(WindowError, match="its limit, 10 s"):
        late.checkpoint()


def test_a_window_that_was_opened_before_goes_on(clock: Clock) -> None:
    window = Window(Limits(75, 90, 50), clock, opened_s=980.0)
    assert window.hard_at_s == 1070.0
    assert window.left_s(500) == 50
