"""The transport as its users see it.  `ofl.client` and `ofl.server` implement these.

Deadlines are absolute, in nanoseconds of CLOCK_MONOTONIC (`time.monotonic_ns`), on every wait.  A deadline in
the past means: do not wait.  Buffers are contiguous and of format 'B'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ofl.contract.records import Buffer


@dataclass(frozen=True)
class Peer:
    """The other end of a connection, as negotiated.

    boot_nonce: random per life of the peer's process; max_frame_bytes: largest body in either direction.
    """

    endpoint: str
    service: str
    version: int
    boot_nonce: int
    max_frame_bytes: int


class ClientTransport(Protocol):
    """One connection of a client.  One thread at a time may use it, except `close`, which any thread may."""

    @property
    def peer(self) -> Peer: ...

    @property
    def alive(self) -> bool:
        """False once the connection is known to be lost; True is no promise."""

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        """Send one request; returns its sequence number.  The buffers may be reused on return.

        Raises FrameTooLargeError (nothing sent), DeadlineError (nothing sent, unless `alive` turned False:
        half a frame cannot be taken back), PeerLostError.
        """

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        """The body of the reply.  On DeadlineError the call stays open: wait again, or cancel it.

        Raises PeerLostError when the connection is lost first.
        """

    def cancel(self, sequence: int) -> None:
        """Forget the call; its reply is dropped when it comes, and the server is told."""

    def call(self, parts: Sequence[Buffer], *, deadline_ns: int) -> bytearray:
        """submit and wait; cancels where the wait ends without a reply."""

    def close(self) -> None: ...


class Connect(Protocol):
    """`ofl.client.connect`, or any other that makes client transports."""

    def __call__(
        self,
        endpoint: str,
        *,
        service: str,
        version_min: int,
        version_max: int,
        max_frame_bytes: int,
        deadline_ns: int,
    ) -> ClientTransport: ...


@dataclass(frozen=True)
class Connected:
    """A client passed the negotiation.  connection: a number never used twice by this server."""

    connection: int
    version: int
    peer_address: str


@dataclass(frozen=True)
class Request:
    """One request; body is valid for as long as it is referenced.  received_ns: CLOCK_MONOTONIC."""

    connection: int
    sequence: int
    body: memoryview
    received_ns: int


@dataclass(frozen=True)
class Disconnected:
    """A connection ended; reason is one clause."""

    connection: int
    reason: str


Event = Connected | Request | Disconnected


class ServerTransport(Protocol):
    """Several listeners, many connections, one consumer of events."""

    def listen(self, endpoint: str) -> str:
        """Listen there; returns the endpoint as bound (port 0: the port chosen).

        Raises EndpointError, AddressInUseError.
        """

    def next_event(self, *, deadline_ns: int) -> Event | None:
        """The next event in order of arrival, or None at the deadline.  Raises ClosedError after close."""

    def reply(self, connection: int, sequence: int, parts: Sequence[Buffer]) -> bool:
        """Send the reply; False where the connection is gone or the client cancelled.

        Raises FrameTooLargeError.
        """

    def disconnect(self, connection: int, reason: str) -> None: ...

    def wake(self) -> None:
        """Make a waiting next_event return None now; async-signal-safe enough for a Python signal handler."""

    def counters(self) -> dict[str, int]:
        """accepted, refused, garbage, oversized, disconnects, requests, replies, bytes in and out."""

    def close(self) -> None: ...
