"""Repetition and rounds are counted as the documentation says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.training.measure import rounds_from_steps
from demo.training.repeats import loop_starts, repeated


def test_a_window_repeats_only_when_all_eight_tokens_came_before() -> None:
    text = [*range(8), 100, *range(8)]  # the window 0..7 ends at 7 and again at 16
    assert np.flatnonzero(repeated(np.array([text]))[0]).tolist() == [16]


def test_a_constant_text_repeats_from_its_second_window_on() -> None:
    assert np.flatnonzero(repeated(np.zeros((1, 12), dtype=np.int64))[0]).tolist() == [8, 9, 10, 11]


def test_a_text_shorter_than_the_window_never_repeats() -> None:
    assert not repeated(np.zeros((2, 7), dtype=np.int64)).any()


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_repetition_equals_a_search_of_all_earlier_windows(text: list[int]) -> None:
    expected, seen = [], set()
    for end in range(8, len(text) + 1):
        window = tuple(text[end - 8 : end])
        if window in seen:
            expected.append(end - 1)
        seen.add(window)
    assert np.flatnonzero(repeated(np.array([text]))[0]).tolist() == expected


@pytest.mark.parametrize(
    ("tail", "start"),
    [
        ([5] * 20, 18),  # 10 fresh tokens, then 5s: the first window of eight 5s ends at 17 and is new
        ([11, 12, 13], 13),  # nothing repeats: the tail is empty
    ],
)
def test_a_looping_tail_begins_behind_the_last_window_that_is_new(tail: list[int], start: int) -> None:
    text = np.array([[*range(20, 30), *tail]])
    assert loop_starts(text, 4).tolist() == [start]


def test_a_looping_tail_never_reaches_into_the_prompt() -> None:
    assert loop_starts(np.zeros((1, 20), dtype=np.int64), 12).tolist() == [12]


def test_rounds_skip_the_prefill_and_the_step_that_fills_the_text() -> None:
    # Prompt of 64 tokens, 12 new ones: prefill 1, then rounds that add 3, 6 and 2 tokens; the last fills the text.
    rounds = rounds_from_steps([[1, 3, 6, 2]], 64, 12)
    assert [(item.anchor, item.accepted) for item in rounds] == [(64, 2), (67, 5)]
