"""A worker's transport that misbehaves on order: between the project's service and the wire, so that the engine's
real client meets the fault.

Owns what is done to replies of STEP.  Every other reply leaves as it is.  One fault holds until the next order.

    none      nothing
    garbage   each reply is spoilt, by the kinds of `GARBAGE` in turn
    slow      each reply is held until the same connection sends its next request, which an engine does once it has
              given up on the first: late by a round, whatever the deadline is
    half      nothing here: the drafter fails for every second request of a round (`oracle_worker`)
"""

import random
import struct
import threading
from collections.abc import Callable, Sequence

from ofl.contract.dspark_v1 import Kind, Op, peek
from ofl.contract.dspark_v1.layout import HEADER, STEP_REPLY, STEP_REPLY_ENTRY
from ofl.contract.records import Buffer
from ofl.interface import Event, Request, ServerTransport

FAULTS = ("none", "garbage", "slow", "half")
FIRST_ENTRY = HEADER.size + STEP_REPLY.size
FIRST_DRAFT = FIRST_ENTRY + STEP_REPLY_ENTRY.size


def _noise(body: bytearray) -> bytearray:
    return bytearray(random.Random(len(body)).randbytes(len(body)))


def _added(record_at: int, offset: int, code: str, amount: int) -> Callable[[bytearray], bytearray]:
    """Adds to one little-endian number."""

    def spoil(body: bytearray) -> bytearray:
        at = record_at + offset
        (value,) = struct.unpack_from(f"<{code}", body, at)
        struct.pack_into(f"<{code}", body, at, value + amount)
        return body

    return spoil


GARBAGE: dict[str, Callable[[bytearray], bytearray]] = {
    "noise": _noise,
    "cut": lambda body: body[:-1],
    "longer": lambda body: body + b"\0",
    "another round": _added(0, HEADER.offsets["round"], "Q", 1),
    "another epoch": _added(0, HEADER.offsets["epoch"], "I", 1),
    "another slot": _added(FIRST_ENTRY, STEP_REPLY_ENTRY.offsets["slot"], "H", 1),
    "no token": _added(FIRST_DRAFT, 0, "i", 1 << 30),
}
"""Ways to spoil a reply, each of which the contract forbids; `no token` is a draft beyond any vocabulary."""


class FaultyServer:
    """Implements `ofl.interface.ServerTransport` on a real one.  The loop's thread and the orders' thread use it."""

    def __init__(self, server: ServerTransport) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._fault = "none"
        self._held: dict[int, list[tuple[int, bytes]]] = {}
        self._done: dict[str, int] = {}
        self._spoilt = 0

    @property
    def fault(self) -> str:
        """The one that holds now."""
        return self._fault

    def order(self, fault: str) -> dict[str, int]:
        """From now on this fault; returns how often what was done to replies since the last order."""
        assert fault in FAULTS, fault
        with self._lock:
            self._fault = fault
            done, self._done = self._done, {}
            for connection in list(self._held):
                self._release(connection)
        return done

    def reply(self, connection: int, sequence: int, parts: Sequence[Buffer]) -> bool:
        """See `ServerTransport`; a spoilt or held reply counts as sent."""
        with self._lock:
            if self._fault not in ("garbage", "slow"):
                return self._server.reply(connection, sequence, parts)
            body = bytearray(b"".join(parts))
            if peek(body, Kind.REPLY).op is not Op.STEP:
                return self._server.reply(connection, sequence, [body])
            if self._fault == "slow":
                self._held.setdefault(connection, []).append((sequence, bytes(body)))
                self._count("held")
                return True
            name = list(GARBAGE)[self._spoilt % len(GARBAGE)]
            self._spoilt += 1
            self._count(name)
            return self._server.reply(connection, sequence, [bytes(GARBAGE[name](body))])

    def next_event(self, *, deadline_ns: int) -> Event | None:
        """See `ServerTransport`; a request lets its connection's held replies go."""
        event = self._server.next_event(deadline_ns=deadline_ns)
        if isinstance(event, Request):
            with self._lock:
                self._release(event.connection)
        return event

    def listen(self, endpoint: str) -> str:
        """See `ServerTransport`."""
        return self._server.listen(endpoint)

    def disconnect(self, connection: int, reason: str) -> None:
        """See `ServerTransport`."""
        self._server.disconnect(connection, reason)

    def wake(self) -> None:
        """See `ServerTransport`."""
        self._server.wake()

    def counters(self) -> dict[str, int]:
        """See `ServerTransport`."""
        return self._server.counters()

    def close(self) -> None:
        """See `ServerTransport`."""
        self._server.close()

    def _release(self, connection: int) -> None:
        for sequence, body in self._held.pop(connection, ()):
            self._server.reply(connection, sequence, [body])

    def _count(self, what: str) -> None:
        self._done[what] = self._done.get(what, 0) + 1
