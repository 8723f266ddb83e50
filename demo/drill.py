"""The drill: when the worker dies, when it comes back, and when enough was seen.  Pure: counts in, orders out.

Theory of operation: the drill watches numbers that grow, tokens generated and rounds by outcome, and moves through
BEFORE -> OUTAGE -> RECOVERY -> DONE.  It asks for a kill at a given round, for a start once enough tokens were
generated without a worker, and is done once enough rounds were good after a resync.
"""

from dataclasses import dataclass
from enum import Enum

from demo.options import DRILL_GOOD_ROUNDS, DRILL_OUTAGE_TOKENS


class Phase(Enum):
    """Where the drill stands."""

    BEFORE = "before"
    OUTAGE = "outage"
    RECOVERY = "recovery"
    DONE = "done"


class Order(Enum):
    """What the demo must do now."""

    KILL = "kill"
    START = "start"
    STOP = "stop"


@dataclass(frozen=True)
class Seen:
    """Running totals.  tokens: generated; good, failed: rounds; resync_rows: context rows sent again."""

    tokens: int
    good: int
    failed: int
    resync_rows: int


class Drill:
    """Feed it totals with `watch`; it returns the order that is due, once each."""

    def __init__(self, kill_round: int) -> None:
        self.phase = Phase.BEFORE
        self._kill_round = kill_round
        self._at_kill = self._at_start = self._at_return = self._now = Seen(0, 0, 0, 0)

    def watch(self, now: Seen) -> Order | None:
        """The next order, None while there is nothing to do."""
        self._now = now
        if self.phase is Phase.BEFORE and now.good >= self._kill_round:
            self.phase, self._at_kill = Phase.OUTAGE, now
            return Order.KILL
        if self.phase is Phase.OUTAGE and self._outage_seen(now):
            self.phase, self._at_start = Phase.RECOVERY, now
            return Order.START
        if self.phase is Phase.RECOVERY and self._at_return.good <= self._at_start.good:
            self._at_return = now  # stays behind at the first good round
        if self.phase is Phase.RECOVERY and self._recovered(now):
            self.phase = Phase.DONE
            return Order.STOP
        return None

    def _outage_seen(self, now: Seen) -> bool:
        return now.tokens - self._at_kill.tokens >= DRILL_OUTAGE_TOKENS and now.failed > self._at_kill.failed

    def _recovered(self, now: Seen) -> bool:
        return (
            now.good - self._at_start.good >= DRILL_GOOD_ROUNDS
            and now.resync_rows > self._at_kill.resync_rows
        )

    def summary(self) -> dict[str, int | bool]:
        """What the drill showed, for people and for --json."""
        return {
            "completed": self.phase is Phase.DONE,
            "killed_at_round": self._at_kill.good,
            "tokens_without_worker": max(self._at_start.tokens, self._at_return.tokens)
            - self._at_kill.tokens,
            "fallback_rounds": self._now.failed - self._at_kill.failed,
            "resync_rows": self._now.resync_rows - self._at_kill.resync_rows,
            "good_rounds_after_restart": self._now.good - self._at_start.good,
        }
