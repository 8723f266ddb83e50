"""The service's log on stderr: one line per thing that happened, and never a flood.

A peer that misbehaves a thousand times a second must not fill a disk: lines of one kind are limited, and
what was left out is said with the next line that passes.
"""

import logging

from ofl.contract.dspark_v1 import Policy

from x86_worker.session import EntryFailed, Event, Refusal, SessionClosed, SessionOpened

LOGGER = logging.getLogger("x86_worker")
LINES_PER_SECOND = 5
"""Lines of one kind within a second; more are counted and left out."""
_SECOND_NS = 1_000_000_000


def configure(level: str) -> None:
    """Log to stderr with time and level."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False


def sentence(event: Event) -> str:
    """An event as one line."""
    match event:
        case SessionOpened():
            policy = event.policy.name.lower()
            return f"session opened: engine {event.engine_id}, epoch {event.epoch}, policy {policy}"
        case SessionClosed():
            return f"session closed: engine {event.engine_id}, epoch {event.epoch}: {event.reason}"
        case Refusal():
            what = f"{event.op.name} refused with {event.status.name}"
            return f"connection {event.connection}: {what}: {event.field}: {event.detail}"
        case EntryFailed():
            return f"drafter failed for slot {event.slot} of engine {event.engine_id}: {event.reason}"


def _is_a_question(event: Event) -> bool:
    """A probe learns the worker's shape from a HELLO that cannot fit: its refusal is the answer, not a fault."""
    return isinstance(event, Refusal) and event.policy is Policy.PROBE


class EventLog:
    """Writes events through the limiter."""

    def __init__(self, logger: logging.Logger = LOGGER) -> None:
        self._logger = logger
        self._limits: dict[type, _Limit] = {}

    def write(self, event: Event, now_ns: int) -> None:
        """One line, or none where too many of its kind came within the second."""
        limit = self._limits.setdefault(type(event), _Limit())
        if not limit.allows(now_ns):
            return
        left_out = limit.take_left_out()
        tail = f" ({left_out} more like it left out)" if left_out else ""
        quiet = isinstance(event, SessionOpened | SessionClosed) or _is_a_question(event)
        self._logger.log(logging.INFO if quiet else logging.WARNING, "%s%s", sentence(event), tail)


class _Limit:
    def __init__(self) -> None:
        self._window_ns = -_SECOND_NS
        self._lines = 0
        self._left_out = 0

    def allows(self, now_ns: int) -> bool:
        if now_ns - self._window_ns >= _SECOND_NS:
            self._window_ns, self._lines = now_ns, 0
        self._lines += 1
        if self._lines <= LINES_PER_SECOND:
            return True
        self._left_out += 1
        return False

    def take_left_out(self) -> int:
        count, self._left_out = self._left_out, 0
        return count
