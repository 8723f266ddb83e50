"""Equality is equality of token ids; a tie is told apart and is still unequal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.texts import TIE_MARGIN, Text, first_differences

IDS = st.lists(st.integers(0, 9), max_size=20)


def test_equal_ids_have_no_difference() -> None:
    assert first_differences([Text("a", [1, 2])], [Text("a", [1, 2], [3.0, 4.0])]) == []


def test_the_first_difference_is_named_with_the_plain_engines_margin() -> None:
    (found,) = first_differences([Text("a", [1, 2, 3])], [Text("a", [1, 5, 6], [2.0, 0.5, 9.0])])
    assert (found.text, found.position, found.margin, found.tie) == (0, 1, 0.5, False)


def test_a_margin_below_the_limit_is_a_tie_and_still_a_difference() -> None:
    found = first_differences([Text("a", [1])], [Text("a", [2], [TIE_MARGIN / 2])])
    assert [difference.tie for difference in found] == [True]


@given(IDS, IDS)
def test_there_is_a_difference_exactly_where_the_ids_differ(ours: list[int], theirs: list[int]) -> None:
    found = first_differences([Text("a", ours)], [Text("a", theirs, [1.0] * len(theirs))])
    assert bool(found) == (ours != theirs)
    if found:
        position = found[0].position
        assert ours[:position] == theirs[:position]
        assert ours[position : position + 1] != theirs[position : position + 1]


def test_texts_that_are_missing_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        first_differences([Text("a")], [])


def test_collecting_adds_up_ids_text_and_time() -> None:
    text, told = Text("p"), []
    events = [
        {"ids": [1], "text": "a", "margins": [1.0], "at_ns": 1_000_000_000},
        {"ids": [2, 3], "text": "bc", "margins": [2.0, 3.0], "at_ns": 3_500_000_000},
    ]
    assert text.collect(events, lambda: told.append(text.latest)) == 2.5
    assert (text.ids, text.text, text.margins, told) == ([1, 2, 3], "abc", [1.0, 2.0, 3.0], ["a", "bc"])


def test_a_text_that_ended_too_early_is_compared_with_all_that_was_ordered() -> None:
    assert Text("p", ordered=9, ids=[1, 2]).due == 9
    assert Text("p", ordered=9, cut=True, ids=[1, 2]).due == 2
