"""The window of a side: until when requests may begin, until when everything must be over.

Pure but for the clock that it is given.  Three limits: the submission deadline (no case begins after it), the hard
bound (the supervisor ends every process at it), and the checkpoints' own (work between two of them takes no longer).
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

SUBMIT_S = 75 * 60.0
HARD_S = 90 * 60.0
CHECKPOINT_S = 900.0
HARD_MAX_S = 7 * 24 * 3600.0
"""The longest window that a run can declare."""


class WindowError(Exception):
    """A limit of the window has passed; the text says which."""


@dataclass(frozen=True)
class Limits:
    """Seconds.  submit, hard: from the window's opening.  checkpoint: from one checkpoint to the next.

    Raises ValueError where they contradict each other.
    """

    submit_s: float = SUBMIT_S
    hard_s: float = HARD_S
    checkpoint_s: float = CHECKPOINT_S

    def __post_init__(self) -> None:
        if not 0 < self.submit_s <= self.hard_s:
            raise ValueError(
                f"the submission deadline, {self.submit_s:g} s, must lie within the hard bound, {self.hard_s:g} s"
            )
        if not self.hard_s <= HARD_MAX_S:
            raise ValueError(f"the hard bound must be at most {HARD_MAX_S:g} s, not {self.hard_s:g}")
        if not 0 < self.checkpoint_s < math.inf:
            raise ValueError(f"the checkpoints' limit must be a time above 0 s, not {self.checkpoint_s:g}")


class Window:
    """An open window.  opened_s: when it opened, on the clock; now unless given.

    The clock is the host's since it started, so a window outlives the runner that opened it.
    """

    def __init__(
        self,
        limits: Limits,
        clock_s: Callable[[], float] = time.monotonic,
        opened_s: float | None = None,
    ) -> None:
        self.limits, self._clock_s = limits, clock_s
        self._checkpoint_s = clock_s()
        self.opened_s = self._checkpoint_s if opened_s is None else opened_s

    @property
    def takes_cases(self) -> bool:
        """Whether the submission deadline is still to come."""
        return self._clock_s() < self.opened_s + self.limits.submit_s

    @property
    def hard_at_s(self) -> float:
        """The hard bound, on the window's clock."""
        return self.opened_s + self.limits.hard_s

    def checkpoint(self) -> None:
        """One was reached.  Raises WindowError where that took too long."""
        self.left_s(0.0)
        self._checkpoint_s = self._clock_s()

    def left_s(self, wanted_s: float) -> float:
        """How long may be waited for something that may take so long.  Raises WindowError where nothing is left."""
        now_s = self._clock_s()
        hard_s = self.hard_at_s - now_s
        if hard_s <= 0:
            raise WindowError(f"the window's hard bound, {self.limits.hard_s:g} s, has passed")
        checkpoint_s = self._checkpoint_s + self.limits.checkpoint_s - now_s
        if checkpoint_s <= 0:
            raise WindowError(
                f"the last checkpoint was more than its limit, {self.limits.checkpoint_s:g} s, ago"
            )
        return min(wanted_s, hard_s, checkpoint_s)
