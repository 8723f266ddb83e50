"""Rounds that keep missing their deadline are told about, once in a while, and not otherwise."""

import pytest
from spark_overlay.misses import QUIET_WINDOWS, WINDOW_ROUNDS, MissWatch


def said(watch: MissWatch, missed: int) -> list[str]:
    """What one window with so many missed rounds makes it say."""
    sentences = [watch.note(index < missed) for index in range(WINDOW_ROUNDS)]
    return [sentence for sentence in sentences if sentence is not None]


@pytest.mark.parametrize(
    ("missed", "sentences"), [(0, 0), (WINDOW_ROUNDS // 2 - 1, 0), (WINDOW_ROUNDS // 2, 1)]
)
def test_half_of_a_window_is_told_about_and_less_is_not(missed: int, sentences: int) -> None:
    assert len(said(MissWatch(50.0), missed)) == sentences


def test_the_sentence_gives_the_count_the_deadline_and_its_setting() -> None:
    (sentence,) = said(MissWatch(12.5), 73)
    assert "73 of the last 100 rounds" in sentence
    assert "12.5 ms" in sentence
    assert "VLLM_DSPARK_REMOTE_TIMEOUT_MS" in sentence


def test_it_is_said_again_only_after_a_while() -> None:
    watch = MissWatch(50.0)
    told = [len(said(watch, WINDOW_ROUNDS)) for _ in range(2 * QUIET_WINDOWS + 3)]
    assert told == [1, *[0] * QUIET_WINDOWS, 1, *[0] * QUIET_WINDOWS, 1]
