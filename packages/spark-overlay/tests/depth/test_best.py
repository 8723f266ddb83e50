"""A depth is called best only where it won beyond noise; else it is said which cannot be told apart."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.depth.best import beats, difference, judge

rates = st.floats(min_value=1.0, max_value=1000.0)


def test_a_depth_that_wins_beyond_noise_is_best() -> None:
    # Logarithms of 100/90, 111/100 and 119/110: .1054, .1044, .0787; mean .0961, deviation .0151.
    # t(2) 4.303 x .0151 / sqrt(3) = .0376.  As shares: 10.1 % and 3.8 %.
    verdict = judge({2: [90, 100, 110], 3: [100, 111, 119], 4: [50, 60, 70]})
    assert verdict.best == 3
    assert verdict.candidates == (3,)
    assert verdict.sentence == "best depth 3: 10.1 % faster than depth 2, the next, with a noise of 3.8 %"


def test_where_noise_hides_which_no_depth_is_best() -> None:
    verdict = judge({0: [50, 51, 50], 2: [90, 112, 95], 3: [100, 101, 99]})
    assert verdict.best is None
    assert verdict.candidates == (3, 2)
    # Logarithms of 100/90, 101/112 and 99/95: .1054, -.1034, .0412; mean .0144, deviation .1069: noise .2656.
    assert verdict.sentence.startswith(
        "no best depth: 2, 3 cannot be told apart; 3 led 2 by 1.5 %, within the noise of 30.4 %"
    )


def test_equal_depths_cannot_be_told_apart_however_quiet_the_host_is() -> None:
    assert judge({1: [5.0, 5.0, 5.0], 2: [5.0, 5.0, 5.0]}).best is None


def test_a_single_depth_is_the_best_of_what_was_measured() -> None:
    assert judge({4: [1.0, 2.0, 3.0]}).sentence == "depth 4 alone was measured"


def test_what_all_depths_share_does_not_hide_who_won() -> None:
    """Prompts differ by a factor of ten, depths by 5 % within each."""
    prompts = [10.0, 100.0, 30.0, 60.0, 20.0]
    assert judge({1: prompts, 2: [1.05 * value + at / 100 for at, value in enumerate(prompts)]}).best == 2


def test_the_noise_is_students_t_over_the_differences() -> None:
    gap, noise = difference(
        [math.exp(value) for value in (3, 5, 4, 8)], [math.exp(value) for value in (1, 2, 3, 4)]
    )
    # Logarithms of the ratios 2, 3, 1, 4: mean 2.5, deviation 1.29099, t(3) 3.182.
    assert gap == pytest.approx(2.5)
    assert noise == pytest.approx(3.182 * 1.2909944 / 2)


@given(st.lists(st.tuples(rates, rates), min_size=3, max_size=40))
def test_no_two_depths_beat_each_other(pairs: list[tuple[float, float]]) -> None:
    one, other = [first for first, _ in pairs], [second for _, second in pairs]
    assert not (beats(one, other) and beats(other, one))


@given(st.dictionaries(st.integers(0, 8), st.lists(rates, min_size=4, max_size=4), min_size=1))
def test_the_best_is_always_the_fastest_and_a_candidate(measured: dict[int, list[float]]) -> None:
    verdict = judge(measured)
    means = {depth: math.prod(values) for depth, values in measured.items()}
    assert means[verdict.candidates[0]] == pytest.approx(max(means.values()))
    assert verdict.best in (None, verdict.candidates[0])
    assert (verdict.best is None) == (len(verdict.candidates) > 1)


def test_pure_noise_makes_a_best_depth_of_two_in_no_more_than_one_of_ten_measurements() -> None:
    """19 of 20 by the quantile; twice that leaves room for chance among 400 tries, drawn from a fixed seed."""
    draw = random.Random(7)
    tries = [
        judge({depth: [draw.gauss(100, 5) for _ in range(8)] for depth in (3, 4)}).best for _ in range(400)
    ]
    assert sum(best is not None for best in tries) < 40
