"""Simulated time: it moves only where something waits, so a run takes no real time and repeats exactly."""

from dataclasses import dataclass

MS = 1_000_000
"""Nanoseconds of a millisecond."""


@dataclass
class SimulatedClock:
    """CLOCK_MONOTONIC's twin.  Called, it says what time it is; now_ns is never 0, which would look like 'no time'."""

    now_ns: int = MS

    def __call__(self) -> int:
        return self.now_ns

    def run_until(self, time_ns: int) -> None:
        """Let time pass until then; a time that has passed changes nothing."""
        self.now_ns = max(self.now_ns, time_ns)
