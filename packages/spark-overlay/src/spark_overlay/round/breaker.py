"""The circuit breaker: keeps rounds off the network while every attempt fails.  Pure; counts rounds, knows no clock.

Rules
1. An attempt is a STEP that was handed to the connection.  Only attempts count; `judge` says how.
2. After `trip` failed attempts in a row it opens: the next `cooldown` rounds stay off the network, whether or not
   they would have had anything to ask.
3. Then it is half open: the first attempt that fails opens it again, the first that succeeds closes it.  Attempts
   that say nothing (context alone, wishes withheld on our side) leave it as it is, so they never use up the probe.
4. A reconnect changes nothing: a worker that misses every deadline and reconnects is not asked more often for it.
   Another life of the worker ends a cooldown early, as whatever was wrong may have ended with the last one; once
   only until the breaker closes or a cooldown runs out, as a worker that dies of every STEP has many lives.
5. Operators may close it (`rearm`): every failure before is forgotten.
"""

from collections.abc import Mapping
from enum import Enum, auto

from spark_overlay.round import reasons
from spark_overlay.round.counters import Counters
from spark_overlay.round.messages import Outcome, RoundResult


class State(Enum):
    """The value is the name in the stats."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Event(Enum):
    """What moves it."""

    SUCCEEDED = auto()
    """An attempt brought drafts."""
    FAILED = auto()
    """An attempt failed, and `trip` in a row is not reached."""
    TRIPPED = auto()
    """An attempt failed, and that makes `trip` in a row, or more."""
    COOLED = auto()
    """The last round of the cooldown was kept off the network."""
    NEW_LIFE = auto()
    """The session is with another life of the worker."""
    REARMED = auto()
    """Operators asked to begin anew."""


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.CLOSED, Event.SUCCEEDED): State.CLOSED,
    (State.CLOSED, Event.FAILED): State.CLOSED,
    (State.CLOSED, Event.TRIPPED): State.OPEN,
    (State.CLOSED, Event.NEW_LIFE): State.CLOSED,
    (State.OPEN, Event.COOLED): State.HALF_OPEN,
    (State.OPEN, Event.NEW_LIFE): State.HALF_OPEN,
    (State.HALF_OPEN, Event.SUCCEEDED): State.CLOSED,
    (State.HALF_OPEN, Event.TRIPPED): State.OPEN,
    (State.HALF_OPEN, Event.NEW_LIFE): State.HALF_OPEN,
    (State.CLOSED, Event.REARMED): State.CLOSED,
    (State.OPEN, Event.REARMED): State.CLOSED,
    (State.HALF_OPEN, Event.REARMED): State.CLOSED,
}
"""What is not in it cannot happen: an open breaker lets no attempt through, only it cools, and one that is half open
has had its failures in a row."""

_NO_FAULT_OF_THE_WORKER = frozenset(
    {
        reasons.NOT_READY,
        reasons.DISABLED,
        reasons.PAUSED,
        reasons.RECONNECTED,
        reasons.COOLDOWN,
        reasons.INTERNAL_ERROR,
    }
)
_SAID_BY_THE_WORKER = frozenset({Outcome.STALE_GENERATION, Outcome.NEEDS_RESET, Outcome.GAP, Outcome.DRAFTER})


def judge(result: RoundResult, *, attempted: bool) -> bool | None:
    """What a round says of the worker: True for a success, False for a failed attempt, None for nothing.

    A round in which some got drafts is a success.  One in which every request that asked the worker was refused by it,
    one by one, failed.  Drafts that came but were not used for what we had sent before (UNCONFIRMED) say nothing.

    attempted: whether a message of the round was handed to the connection.
    """
    if not attempted or result.reason in _NO_FAULT_OF_THE_WORKER:
        return None
    if result.reason:
        return False
    outcomes = set(result.outcomes.tolist())
    if Outcome.OK in outcomes:
        return True
    if Outcome.UNCONFIRMED in outcomes or not outcomes & _SAID_BY_THE_WORKER:
        return None
    return False


class Breaker:
    """One engine's breaker; one thread uses it.

    trip: failed attempts in a row that open it; 0: nothing does.  cooldown: rounds, at least 1.
    counters: breaker_trips counts how often it left `closed`, breaker_recoveries how often it came back; their
    difference is 1 while it is not closed, and 0 while it is.
    state: now.  failures: failed attempts in a row.  cooldown_left: rounds.
    """

    def __init__(self, trip: int, cooldown: int, counters: Counters) -> None:
        assert trip >= 0, "the settings are checked"
        assert cooldown >= 1, "the settings are checked"
        self._trip, self._cooldown = trip, cooldown
        self._counters = counters
        self._life: int | None = None
        self._cut_short = False
        self.state = State.CLOSED
        self.failures = self.cooldown_left = 0

    def admit(self) -> bool:
        """Whether this round may use the network.  Called once in every round."""
        if self.state is not State.OPEN:
            return True
        self.cooldown_left -= 1
        if self.cooldown_left == 0:
            self._cut_short = False
            self._move(Event.COOLED)
        return False

    def note(self, succeeded: bool | None) -> State | None:
        """What became of a round that was admitted, from `judge`; the state it came to, None where it stayed."""
        if succeeded is None or not self._trip:
            return None
        if succeeded:
            self.failures = 0
            return self._move(Event.SUCCEEDED)
        self.failures += 1
        return self._move(Event.TRIPPED if self.failures >= self._trip else Event.FAILED)

    def new_session(self, life: int) -> None:
        """A session was opened with the life of the worker that is known by this number (its boot nonce)."""
        known, self._life = self._life, life
        if known in (None, life):
            return
        if self.state is State.OPEN:
            if self._cut_short:
                return
            self._cut_short = True
        self._move(Event.NEW_LIFE)

    def rearm(self) -> None:
        """Forget every failure."""
        self.failures = 0
        self._move(Event.REARMED)

    def summary(self) -> dict[str, object]:
        """The stats' section `breaker`."""
        return {
            "state": self.state.value,
            "consecutive_failures": self.failures,
            "cooldown_left": self.cooldown_left,
            "trips": self._counters.breaker_trips,
            "trip": self._trip,
            "cooldown": self._cooldown,
        }

    def _move(self, event: Event) -> State | None:
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if self.state is before:
            return None
        self._counters.breaker_trips += before is State.CLOSED
        self.cooldown_left = self._cooldown if self.state is State.OPEN else 0
        if self.state is State.CLOSED:
            self._counters.breaker_recoveries += 1
            self._cut_short = False
        return self.state
