"""Which remote drafts are out for verification, and how many of them the target took.

Pure.  A round's drafts are verified by the same request's next step.  Rounds that failed leave nothing here,
so their zero drafts, which the engine verifies all the same, never count; neither do the placeholders with
which the engine pads a request that was added again.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from spark_overlay.round.messages import RoundRequest, RoundResult


@dataclass(frozen=True)
class Verified:
    """One request's verification: accepted of drafted tokens, after the anchor at position."""

    accepted: int
    drafted: int
    position: int


class AcceptanceLedger:
    """The drafts of each slot's last good round, until the next step says what became of them."""

    def __init__(self) -> None:
        self._out: dict[int, tuple[Hashable, int, int]] = {}

    def take(self, slot: int, owner: Hashable, scheduled: int, sampled: int) -> Verified | None:
        """What this step verified of the slot's drafts; None where they were not ours or not verified.

        owner: names the request's life in the slot.  scheduled: drafts that this step verified.  sampled:
        tokens that came out, the accepted drafts and one more; 0 while the prompt is still being read.
        """
        held = self._out.pop(slot, None)
        if held is None or held[0] != owner or scheduled < 1 or sampled < 1:
            return None
        drafted = min(held[1], scheduled)
        return Verified(min(sampled - 1, drafted), drafted, held[2])

    def forget(self) -> None:
        """Nothing is out any more: a round failed whose drafts the engine may take for the last good one's."""
        self._out.clear()

    def put(self, requests: Sequence[RoundRequest], owners: Sequence[Hashable], result: RoundResult) -> None:
        """Remember the drafts of a round's good requests."""
        for index, (request, owner) in enumerate(zip(requests, owners, strict=True)):
            if result.ok[index]:
                position = request.first_position + request.n_rows
                self._out[request.slot] = (owner, request.n_out, position)
