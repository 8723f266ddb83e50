"""Shadow's comparison: what the local and the remote drafter drafted from the same state.  Pure, in fixed memory.

Owns which rounds may be compared and what is counted of them.  Must never drop a mismatch: each is counted and handed
to the caller, and the newest ones are kept whole.

A request is eligible where drafts were wanted and came, from a whole window, with every draft position inside the
engine's longest sequence (past its end the two drafters clip positions each in its own way).  Agreement at a position
is conditional on agreement at every earlier one: a later draft depends on the earlier ones, so after the first
mismatch nothing more is learned.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from spark_overlay.round.messages import RoundRequest, RoundResult

NEAR_TIE_MARGIN = 1e-3
"""Where the worker's best logit led by no more than this, another order of summation may pick the other token."""
_NEAR_TIE = np.float32(NEAR_TIE_MARGIN)
"""As margins travel: a float32 that was meant to be the bound must not lie above it."""
EXAMPLES_MAX = 16
REQUEST_ID_CHARACTERS_MAX = 128
INELIGIBLE = {
    "round_failed": "the whole remote round failed",
    "request_failed": "the request got no remote drafts",
    "partial_window": "the worker drafted from a window that lacks rows",
    "last_positions": "the block reaches past the engine's longest sequence",
}


@dataclass(frozen=True)
class Mismatch:
    """One block in which the drafters differ.

    position: absolute, of the anchor.  anchor: its token.  local, remote: K ids.  remote_margins: K logits.
    first_mismatch: draft position, 0 .. K-1.  remote_margin: the worker's there.  near_tie: it is at most
    NEAR_TIE_MARGIN.
    """

    request_id: str
    position: int
    anchor: int
    local: tuple[int, ...]
    remote: tuple[int, ...]
    remote_margins: tuple[float, ...]
    first_mismatch: int
    remote_margin: float
    near_tie: bool


class Agreement:
    """Counts over one engine run.  max_positions: the engine's longest sequence.

    K, the positions compared, is what the local drafter drafts; the worker's block may be longer.
    """

    def __init__(self, max_positions: int) -> None:
        self._max_positions = max_positions
        self._drafts = 0
        self._ineligible = dict.fromkeys(INELIGIBLE, 0)
        self._first_mismatch = [0]
        self._examples: deque[Mismatch] = deque(maxlen=EXAMPLES_MAX)
        self._near_ties = 0

    def record(
        self, local: NDArray[np.int64], requests: Sequence[RoundRequest], result: RoundResult
    ) -> list[Mismatch]:
        """One step's comparison; every mismatch of it.

        local: int64 [n, K], ids of the target's vocabulary.  requests, result: of the same step, with every wish for
        the whole block; no requests where the round could not be begun, and then all n count as failed.  Raises
        ValueError where the shapes cannot be of one step, or of one engine.
        """
        if result.reason and not requests:
            self._ineligible["round_failed"] += len(local)
            return []
        self._check_shapes(local, len(requests), result)
        mismatches = []
        for index, request in enumerate(requests):
            if not request.n_out:
                continue
            if (reason := self._why_not(index, request, result)) is not None:
                self._ineligible[reason] += 1
                continue
            differs = np.flatnonzero(local[index] != result.drafts[index, : self._drafts])
            first = int(differs[0]) if differs.size else self._drafts
            self._first_mismatch[first] += 1
            if differs.size:
                mismatches.append(self._mismatch(index, first, local, request, result))
        self._examples.extend(mismatches)
        return mismatches

    def summary(self) -> dict[str, object]:
        """The stats' section `shadow`."""
        histogram, drafts = self._first_mismatch, self._drafts
        eligible = sum(histogram)
        # A block is compared at a position where its first mismatch lies there or later, and agrees where later.
        compared = [sum(histogram[position:]) for position in range(drafts)]
        agreed = [sum(histogram[position + 1 :]) for position in range(drafts)]
        return {
            "eligible": eligible,
            "eligible_share": _share(eligible, eligible + sum(self._ineligible.values())),
            "ineligible": dict(self._ineligible),
            "compared_by_position": compared,
            "agreed_by_position": agreed,
            "agree_rate_by_position": [_share(*pair) for pair in zip(agreed, compared, strict=True)],
            "first_mismatch_hist": list(histogram),
            "full_block_agree_rate": _share(histogram[drafts], eligible),
            "mismatches": eligible - histogram[drafts],
            "near_ties": self._near_ties,
            "examples": [asdict(example) for example in self._examples],
        }

    def _check_shapes(self, local: NDArray[np.int64], requests: int, result: RoundResult) -> None:
        count, drafts = local.shape
        block = result.drafts.shape[1]
        if (
            not count == requests == len(result.drafts)
            or not 1 <= drafts <= block
            or self._drafts not in (0, drafts)
        ):
            raise ValueError(
                f"local drafts {local.shape} and remote ones {result.drafts.shape} for {requests} requests, "
                f"after {self._drafts or 'no'} positions before: not of one step"
            )
        if not self._drafts:
            self._drafts, self._first_mismatch = drafts, [0] * (drafts + 1)

    def _why_not(self, index: int, request: RoundRequest, result: RoundResult) -> str | None:
        if result.reason:
            return "round_failed"
        if not result.ok[index]:
            return "request_failed"
        if result.partial[index]:
            return "partial_window"
        if request.first_position + request.n_rows + self._drafts >= self._max_positions:
            return "last_positions"
        return None

    def _mismatch(
        self, index: int, first: int, local: NDArray[np.int64], request: RoundRequest, result: RoundResult
    ) -> Mismatch:
        margins = result.margins[index, : self._drafts].tolist()
        near_tie = bool(result.margins[index, first] <= _NEAR_TIE)
        self._near_ties += near_tie
        return Mismatch(
            request_id=request.request_id[:REQUEST_ID_CHARACTERS_MAX],
            position=request.first_position + request.n_rows,
            anchor=request.anchor,
            local=tuple(local[index].tolist()),
            remote=tuple(result.drafts[index, : self._drafts].tolist()),
            remote_margins=tuple(margins),
            first_mismatch=first,
            remote_margin=margins[first],
            near_tie=near_tie,
        )


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
