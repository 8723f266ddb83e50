"""The words that carry a round to every rank: all of it arrives, bit by bit, and nothing of the round before."""

import numpy as np
import pytest
from spark_overlay.decision import HEAD_WORDS, DecisionLayout
from spark_overlay.round import reasons
from spark_overlay.round.messages import Outcome, RoundResult


def result(outcomes: list[Outcome], reason: str = "") -> RoundResult:
    """A block of 5; drafts and confidences that tell request and position."""
    count = len(outcomes)
    ok = np.array([outcome is Outcome.OK for outcome in outcomes], bool)
    drafts = (np.arange(count * 5, dtype=np.int32).reshape(count, 5) + 1) * ok[:, None]
    confidences = (ok[:, None] / (drafts + 3)).astype(np.float32)
    zeros = np.zeros((count, 5), np.float32)
    codes = np.array(outcomes, np.int32)
    return RoundResult(drafts, confidences, zeros, np.zeros(count, bool), ok, codes, reason)


def test_what_rank_0_wrote_every_rank_reads() -> None:
    layout = DecisionLayout(max_requests=4, drafts=3)
    words = np.full(layout.words, 99, np.int32)
    sent = result([Outcome.OK, Outcome.DRAFTER, Outcome.NO_DRAFT])
    layout.encode(words, 7, sent, must_raise=True)
    read = layout.decode(words.copy())
    assert (read.round, read.must_raise, read.reason) == (7, True, "")
    assert read.outcomes.tolist() == [Outcome.OK, Outcome.DRAFTER, Outcome.NO_DRAFT]
    assert read.drafts.tolist() == [[1, 2, 3], [0, 0, 0], [0, 0, 0]]
    assert read.confidences.tobytes() == np.ascontiguousarray(sent.confidences[:, :3]).tobytes()
    assert read.ok.tolist() == [True, False, False]
    assert read.without.tolist() == [False, True, False]


@pytest.mark.parametrize("reason", reasons.ALL)
def test_every_reason_has_a_word_of_its_own(reason: str) -> None:
    layout = DecisionLayout(2, 5)
    words = np.zeros(layout.words, np.int32)
    layout.encode(words, 1, result([Outcome.ROUND_FAILED], reason), must_raise=False)
    assert layout.decode(words).reason == reason


def test_nothing_of_the_round_before_is_left() -> None:
    layout = DecisionLayout(3, 5)
    words = np.zeros(layout.words, np.int32)
    layout.encode(words, 1, result([Outcome.OK] * 3), must_raise=True)
    layout.encode(words, 2**31 + 2, result([Outcome.NO_DRAFT]), must_raise=False)
    assert words[:HEAD_WORDS].tolist() == [2, 0, 0, 1]
    assert words[HEAD_WORDS + 1 :].any() == 0
