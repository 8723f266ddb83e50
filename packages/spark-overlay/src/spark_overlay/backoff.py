"""How long to wait before the next attempt to connect.  Pure."""

from collections.abc import Callable

JITTER = 0.2


class Backoff:
    """Delays from first_ns, doubling to max_ns, each up to JITTER longer or shorter (never over max_ns).

    draw: uniform in 0..1.
    """

    def __init__(self, first_ns: int, max_ns: int, draw: Callable[[], float]) -> None:
        self._first_ns = first_ns
        self._max_ns = max_ns
        self._draw = draw
        self._next_ns = first_ns

    def reset(self) -> None:
        """Begin again with the first delay."""
        self._next_ns = self._first_ns

    def next_ns(self) -> int:
        """The next delay."""
        spread = 1 + JITTER * (2 * self._draw() - 1)
        delay = min(int(self._next_ns * spread), self._max_ns)
        self._next_ns = min(2 * self._next_ns, self._max_ns)
        return delay
