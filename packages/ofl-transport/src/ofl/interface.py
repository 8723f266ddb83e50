"""The transport as its users see it.  `ofl.client` and `ofl.server` implement these.

`ClientTransport` and `ServerTransport` are what every transport can do.  `PlacingTransport` and `LendingServer` add
direct placement: a reply that lands in memory of the caller's choice.

Deadlines are absolute, in nanoseconds of CLOCK_MONOTONIC (`time.monotonic_ns`), on every wait.  A deadline in
the past means: do not wait.  Buffers are contiguous and of format 'B'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType, Protocol, overload

from ofl.contract.records import Buffer

if TYPE_CHECKING:  # it loads ctypes, which an interface needs not
    from ofl import memory

Placed = NewType("Placed", int)
"""The sequence number of a call whose reply goes to a range."""


@dataclass(frozen=True)
class Peer:
    """The other end of a connection, as negotiated.

    boot_nonce: random per life of the peer's process; max_frame_bytes: largest body in either direction;
    authenticated: both sides proved that they hold the key; wire: what carries the data, for people: "tcp", or with
    its device; empty where nobody says.
    """

    endpoint: str
    service: str
    version: int
    boot_nonce: int
    max_frame_bytes: int
    authenticated: bool = False
    wire: str = ""


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

    def cancel(self, sequence: int) -> bool | None:
        """Forget the call; its reply is dropped when it comes, and the server is told.

        What it returns means something for placed calls alone: `PlacingTransport.cancel`.
        """

    def call(self, parts: Sequence[Buffer], *, deadline_ns: int) -> bytearray:
        """submit and wait; cancels where the wait ends without a reply."""

    def close(self) -> None: ...


class PlacingTransport(ClientTransport, Protocol):
    """A client transport whose replies can land in registered memory.

    The range of a call belongs to the call: from `submit` until `wait` returned its reply, or, after a `cancel`, until
    the call is settled.  Until then it may change at any time, and no other call of any connection may be given a part
    of it.
    """

    def register(self, buffer: "memory.Buffer") -> None:
        """Before the buffer, or a range of it, is used with this connection.

        Raises TransportError; its text names the limit that was met and how to raise it.
        """

    @overload
    def submit(
        self,
        parts: Sequence[Buffer],
        *,
        deadline_ns: int,
        into: "memory.Range",
        lent: "memory.Buffer | None" = None,
    ) -> Placed: ...

    @overload
    def submit(
        self,
        parts: Sequence[Buffer],
        *,
        deadline_ns: int,
        into: "memory.Range | None" = None,
        lent: "memory.Buffer | None" = None,
    ) -> int:
        """As `ClientTransport.submit`.  into: where the reply goes.

        lent: parts that lie in it are sent without a copy, and must stay as they are until the call has ended.
        Raises QuarantinedError, OverlapError, and ValueError for memory that is not registered.
        """

    @overload
    def wait(  # type: ignore[overload-overlap]  # a Placed is an int for whoever does not care
        self, sequence: Placed, *, deadline_ns: int
    ) -> memoryview: ...

    @overload
    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        """As `ClientTransport.wait`; of a placed call the written part of its range."""

    def cancel(self, sequence: int) -> bool:
        """As `ClientTransport.cancel`.  True: the call is settled; False: its memory is in quarantine."""

    def settled(self, sequence: int, *, deadline_ns: int) -> bool:
        """Wait until nothing of the peer can reach the memory of a cancelled call; False at the deadline.

        True at once for a call that ended by its reply, and once the connection is gone.  Raises ValueError for a call
        that is still open.
        """


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
    """One request; body is valid for as long as it is referenced.

    received_ns: CLOCK_MONOTONIC.  max_reply_bytes: the largest reply that this call takes.
    """

    connection: int
    sequence: int
    body: memoryview
    received_ns: int
    max_reply_bytes: int = 1 << 30


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


class LendingServer(ServerTransport, Protocol):
    """A server transport that can send replies from registered memory without a copy."""

    def register(self, buffer: "memory.Buffer") -> None:
        """Before the buffer is lent to replies, and after `listen`.

        Raises TransportError; its text names the limit that was met and how to raise it.
        """

    def reply(
        self,
        connection: int,
        sequence: int,
        parts: Sequence[Buffer],
        *,
        lent: "memory.Buffer | None" = None,
    ) -> bool:
        """As `ServerTransport.reply`; parts that lie in lent stay as they are until it is idle.

        Raises ValueError for a buffer that is not registered; the call stays open then.
        """

    def idle(self, buffer: "memory.Buffer", *, deadline_ns: int) -> bool:
        """Wait until no reply of this server reads the buffer; False at the deadline."""
