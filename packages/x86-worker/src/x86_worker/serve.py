"""The loop between the transport and the session core, and the life of the worker process.

Owns listening, the ready file, signals and the drain.  Holds no protocol: `session` decides, this sends.  One
thread does everything; the signal handler only notes the wish and wakes the loop.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ofl.errors import FrameTooLargeError
from ofl.files import publish, read_plain
from ofl.interface import Connected, Disconnected, Request, ServerTransport

from x86_worker.log import LOGGER, EventLog
from x86_worker.session import DrafterService, Event
from x86_worker.supervisor import notify

WAIT_NS = 1_000_000_000
"""Longest wait for an event; only bounds how long a lost wake-up could matter."""
DRAIN_NS = 2_000_000_000
READY_BYTES_MAX = 1 << 16
"""Longest time that requests which arrived before the stop are still served."""


@dataclass(frozen=True)
class ReadyRecord:
    """What the ready file says of a worker that listens.  Digests and the nonce are hex."""

    pid: int
    endpoints: list[str]
    boot_nonce: str
    identity: str
    markov_identity: str
    target_binding: str
    kind: str


class Stop:
    """The wish to stop, set by a signal.  wake: ends the loop's wait, once there is a loop."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.wake: Callable[[], None] = lambda: None

    @property
    def asked(self) -> bool:
        return self.signal is not None


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """While open, SIGTERM and SIGINT set stop and wake the loop; after a stop they are ignored.

    A supervisor that asks twice must not turn an orderly end into a death by signal on the last metres.
    """

    def note(number: int, _frame: FrameType | None) -> None:
        if not stop.asked:
            notify("STOPPING=1")
        stop.signal = number
        stop.wake()

    old = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, signal.SIG_IGN if stop.asked else handler)


def run(
    server: ServerTransport,
    service: DrafterService,
    stop: Stop,
    *,
    clock_ns: Callable[[], int] = time.monotonic_ns,
    drain_ns: int = DRAIN_NS,
) -> None:
    """Serve until stop is asked, then answer what arrived before, within drain_ns.  Closes the server."""
    loop = _Loop(server, service, EventLog(), clock_ns)
    try:
        while not stop.asked:
            loop.turn(clock_ns() + WAIT_NS)
        LOGGER.info("stopping on signal %s with %s sessions open", stop.signal, len(service.sessions))
        service.drain(clock_ns())
        deadline = clock_ns() + drain_ns
        # A deadline that has passed means "do not wait": what is queued is served, nothing more is awaited.
        # One empty turn proves nothing, for it may be the wake-up of the signal.
        empty_turns = 0
        while clock_ns() < deadline and empty_turns < 2:
            empty_turns = 0 if loop.turn(0) else empty_turns + 1
    finally:
        server.close()
    LOGGER.info("stopped")


class _Loop:
    def __init__(
        self,
        server: ServerTransport,
        service: DrafterService,
        log: EventLog,
        clock_ns: Callable[[], int],
    ) -> None:
        self._server = server
        self._service = service
        self._log = log
        self._clock_ns = clock_ns

    def turn(self, deadline_ns: int) -> bool:
        """Handle one event; False where none came by the deadline."""
        event = self._server.next_event(deadline_ns=deadline_ns)
        if event is None:
            return False
        match event:
            case Connected():
                self._service.connected(event.connection)
            case Disconnected():
                self._tell(self._service.disconnected(event.connection, event.reason))
            case Request():
                self._answer(event)
        return True

    def _answer(self, request: Request) -> None:
        try:
            answer = self._service.receive(
                request.connection,
                request.body,
                received_ns=request.received_ns,
                now_ns=self._clock_ns(),
            )
            self._tell(answer.events)
            parts = self._service.encode(answer, finished_ns=self._clock_ns())
            self._server.reply(request.connection, request.sequence, parts)
        except FrameTooLargeError as error:
            self._give_up_on(request.connection, f"the reply is too long: {error}")
        except Exception:
            # A defect of ours must cost the one connection that met it, not the engines beside it.
            LOGGER.exception("internal error while serving connection %s", request.connection)
            self._give_up_on(request.connection, "internal error of the worker")

    def _give_up_on(self, connection: int, reason: str) -> None:
        self._server.disconnect(connection, reason)

    def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            self._log.write(event, self._clock_ns())


def write_ready_file(path: Path, record: ReadyRecord) -> None:
    """Write the record so that a reader sees all of it or nothing."""
    publish(path, json.dumps(vars(record), indent=1).encode() + b"\n", synced=True)


def remove_ready_file(path: Path) -> None:
    """Take the record away when the worker stops, unless another worker has written its own since."""
    try:
        if json.loads(read_plain(path, READY_BYTES_MAX)).get("pid") == os.getpid():
            path.unlink()
    except (OSError, ValueError, RecursionError, AttributeError):
        return
