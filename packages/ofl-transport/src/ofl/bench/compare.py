"""Ours and a peer's, measurement by measurement in turn: best and spread of each, and the ratio of the best.

A machine changes while it is measured; two that are measured in turn meet the same changes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ofl.bench.figures import Result
from ofl.bench.peers import Comparison
from ofl.errors import TransportError


@dataclass(frozen=True)
class Compared:
    """Figures by round: nanoseconds of a round trip, or bytes a second."""

    comparison: Comparison
    ours: tuple[float, ...]
    peers: tuple[float, ...]

    def best(self, figures: tuple[float, ...]) -> float:
        """The smallest time, or the largest bandwidth."""
        return max(figures) if self.comparison.higher_is_better else min(figures)

    def worst(self, figures: tuple[float, ...]) -> float:
        """The other end of the spread."""
        return min(figures) if self.comparison.higher_is_better else max(figures)

    @property
    def ratio(self) -> float:
        """Best of ours over best of the peer's: below 1 is better for times, above 1 for bandwidth."""
        return self.best(self.ours) / self.best(self.peers)


def compare(
    comparison: Comparison, measure: Callable[[float], Result], *, rounds: int, seconds: float
) -> Compared:
    """`rounds` of both in turn.  measure: ours, for about so many seconds.  Raises TransportError."""
    ours, peers = [], []
    for _ in range(rounds):
        result = measure(seconds)
        ours.append(comparison.ours(result))
        printed = comparison.pair(seconds, result).run()
        try:
            peers.append(comparison.read(printed))
        except ValueError as error:
            raise TransportError(f"{comparison.tool.command}: {error}") from None
    return Compared(comparison, tuple(ours), tuple(peers))
