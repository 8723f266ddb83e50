"""A server transport in memory: the test feeds events, the loop's replies are kept."""

from collections import deque
from collections.abc import Callable, Sequence

from ofl.contract.records import Buffer
from ofl.errors import ClosedError, FrameTooLargeError
from ofl.interface import Event


class ServerTwin:
    """Implements `ofl.interface.ServerTransport`.  on_idle: called when the loop finds no event."""

    def __init__(self, events: Sequence[Event] = (), on_idle: Callable[[], None] = lambda: None) -> None:
        self.events = deque(events)
        self.on_idle = on_idle
        self.replies: dict[tuple[int, int], bytes] = {}
        self.disconnects: list[tuple[int, str]] = []
        self.frame_bytes_max = 1 << 20
        self.closed = False

    def listen(self, endpoint: str) -> str:
        return endpoint

    def next_event(self, *, deadline_ns: int) -> Event | None:
        if self.closed:
            raise ClosedError("closed")
        if self.events:
            return self.events.popleft()
        self.on_idle()
        return None

    def reply(self, connection: int, sequence: int, parts: Sequence[Buffer]) -> bool:
        body = b"".join(parts)
        if len(body) > self.frame_bytes_max:
            raise FrameTooLargeError(f"{len(body)} bytes")
        self.replies[connection, sequence] = body
        return True

    def disconnect(self, connection: int, reason: str) -> None:
        self.disconnects.append((connection, reason))

    def wake(self) -> None: ...

    def counters(self) -> dict[str, int]:
        return {"requests": len(self.replies)}

    def close(self) -> None:
        self.closed = True
