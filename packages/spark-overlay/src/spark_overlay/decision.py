"""What rank 0 tells the other ranks of a round: one fixed-size frame of int32 words, also when it failed.

Pure: numpy alone.  The seam copies the words to the device and broadcasts them; every rank then acts on the same
words, so no rank ever decides alone.

    word 0            round, counted modulo 2**31
    word 1            flags (`Flag`)
    word 2            reason of a failed round: 1 + its index in `reasons.ALL`, 0 where it did not fail
    word 3            requests n
    then, for max_requests requests each
    max_requests      outcomes (`Outcome`)
    max_requests x K  drafts, ids of the target's vocabulary, zeros where there is none
    max_requests x K  confidences, the bits of float32
"""

from dataclasses import dataclass
from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from spark_overlay.round import reasons
from spark_overlay.round.messages import Outcome, RoundResult

Words = NDArray[np.int32]
HEAD_WORDS = 4
ROUND_MODULUS = 1 << 31


class Flag(IntFlag):
    """Of the whole round."""

    NONE = 0
    MUST_RAISE = 1
    """ON_FAIL=raise and a request that wanted drafts got none: every rank raises after the broadcast."""


@dataclass(frozen=True)
class Decision:
    """The words as every rank reads them.  Arrays are views of the words, of n requests.

    outcomes: int32 [n].  drafts: int32 [n, K].  confidences: float32 [n, K].  reason: "" where the round did not
    fail.
    """

    round: int
    must_raise: bool
    reason: str
    outcomes: NDArray[np.int32]
    drafts: NDArray[np.int32]
    confidences: NDArray[np.float32]

    @property
    def ok(self) -> NDArray[np.bool_]:
        """bool [n]: who got drafts."""
        return np.equal(self.outcomes, Outcome.OK)

    @property
    def without(self) -> NDArray[np.bool_]:
        """bool [n]: who wanted drafts and got none."""
        return ~np.isin(self.outcomes, (Outcome.OK, Outcome.NO_DRAFT))


class DecisionLayout:
    """Places in the words for an engine of max_requests requests and K draft positions."""

    def __init__(self, max_requests: int, drafts: int) -> None:
        self.max_requests, self.n_drafts = max_requests, drafts
        self.outcomes = slice(HEAD_WORDS, HEAD_WORDS + max_requests)
        self.drafts = slice(self.outcomes.stop, self.outcomes.stop + max_requests * drafts)
        self.confidences = slice(self.drafts.stop, self.drafts.stop + max_requests * drafts)
        self.words: int = self.confidences.stop

    def encode(self, out: Words, round_number: int, result: RoundResult, *, must_raise: bool) -> None:
        """Write a result of at most max_requests requests; of its block the first K positions.

        out: int32 [words].  Words past the result's requests are zero.
        """
        count, width = len(result.outcomes), self.n_drafts
        assert count <= self.max_requests, "more requests than the engine has slots"
        out[:] = 0
        out[0] = round_number % ROUND_MODULUS
        out[1] = Flag.MUST_RAISE if must_raise else Flag.NONE
        out[2] = 1 + reasons.ALL.index(result.reason) if result.reason else 0
        out[3] = count
        out[self.outcomes][:count] = result.outcomes
        out[self.drafts].reshape(-1, width)[:count] = result.drafts[:, :width]
        confidences = np.ascontiguousarray(result.confidences[:, :width], np.float32)
        out[self.confidences].reshape(-1, width)[:count] = confidences.view(np.int32)

    def decode(self, words: Words) -> Decision:
        """What `encode` wrote.  words: int32 [words], contiguous."""
        count, width = int(words[3]), self.n_drafts
        return Decision(
            round=int(words[0]),
            must_raise=bool(words[1] & Flag.MUST_RAISE),
            reason=reasons.ALL[words[2] - 1] if words[2] else "",
            outcomes=words[self.outcomes][:count],
            drafts=words[self.drafts].reshape(-1, width)[:count],
            confidences=words[self.confidences].view(np.float32).reshape(-1, width)[:count],
        )
