"""Ours and a peer's, measurement by measurement in turn: best and spread of each, and the ratio of the best.

A machine changes while it is measured; two that are measured in turn meet the same changes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ofl.bench.figures import Result
from ofl.bench.pairs import Pair
from ofl.bench.peers import Comparison
from ofl.errors import TransportError

TRIES = 3
"""A tool that warms up by the clock measures nothing at all, now and then, on a machine that is busy."""


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
        peers.append(_peer(comparison, comparison.pair(seconds, result)))
    return Compared(comparison, tuple(ours), tuple(peers))


def _peer(comparison: Comparison, pair: Pair) -> float:
    """The tool's figure, from the first of TRIES runs that brings one."""
    for left in reversed(range(TRIES)):
        try:
            return comparison.read(pair.run())
        except ValueError as error:
            if not left:
                raise TransportError(f"{comparison.tool.command}: {error}") from None
        except TransportError:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")
