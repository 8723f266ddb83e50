"""The server end: many connections, one consumer.  Implements `ofl.interface.LendingServer`."""

import ctypes
import functools
import os
import threading
from collections.abc import Sequence

from ofl import abi, arguments, buffers, memory, native, settings
from ofl.contract.records import Buffer
from ofl.endpoint import Endpoint, parse_endpoint
from ofl.errors import ClosedError, EndpointError, FrameTooLargeError, TransportError
from ofl.interface import Connected, Disconnected, Event, Request

_CONNECTED, _REQUEST, _DISCONNECTED = 1, 2, 3


class Server:
    """A server of one service.

    `next_event` belongs to one thread at a time; every other method may be called by any.  After fork() the
    child must not use it.

    service: 1 to 64 printable ASCII characters.
    max_frame_bytes: the largest body in either direction, 1024 to 2**30.
    allow_any: wildcard addresses may be listened on.
    max_connections: negotiated ones at once; more are refused.
    max_pending: connections that have not negotiated; the oldest gives way.
    max_calls: unanswered requests of one connection, 1 to 256.
    handshake_ns: time to negotiate.
    frame_ns: time from the first to the last byte of a frame.
    max_queued_bytes: undelivered request bytes of one connection before reading from it stops, and unsent
    reply bytes (beyond one frame, without those in lent memory) before the connection is dropped; default: four frames.
    spin_ns: how long `next_event` looks before it sleeps; None: what OFL_SPIN_US says, else 50 us.
    key_file: clients must prove that they hold this key, and it is proved to them.
    allowed: addresses and prefixes (10.0.0.0/24) that clients may come from; none: all.

    Raises ValueError naming the option at fault, TransportError where the key cannot be used.
    """

    def __init__(
        self,
        service: str,
        *,
        version_min: int,
        version_max: int,
        max_frame_bytes: int,
        allow_any: bool = False,
        max_connections: int = 64,
        max_pending: int = 64,
        max_calls: int = 256,
        handshake_ns: int = 2_000_000_000,
        frame_ns: int = 10_000_000_000,
        max_queued_bytes: int | None = None,
        spin_ns: int | None = None,
        key_file: str | os.PathLike[str] | None = None,
        allowed: Sequence[str] = (),
    ) -> None:
        self._handle = ctypes.c_void_p()
        self._library = native.loaded()
        prefixes = (ctypes.c_char_p * len(allowed))(
            *(arguments.text("allowed address", prefix) for prefix in allowed)
        )
        queued = 4 * max_frame_bytes if max_queued_bytes is None else max_queued_bytes
        options = abi.ServerOptions(
            service=arguments.text("service", service),
            key_file=arguments.key_path(key_file),
            allowed=prefixes if allowed else None,
            allowed_count=len(allowed),
            version_min=arguments.unsigned("version_min", version_min, 16),
            version_max=arguments.unsigned("version_max", version_max, 16),
            frame_bytes_max=arguments.unsigned("max_frame_bytes", max_frame_bytes, 32),
            connections_max=arguments.unsigned("max_connections", max_connections, 32),
            pending_max=arguments.unsigned("max_pending", max_pending, 32),
            calls_max=arguments.unsigned("max_calls", max_calls, 32),
            allow_any=int(allow_any),
            handshake_ns=arguments.span_ns("handshake_ns", handshake_ns),
            frame_ns=arguments.span_ns("frame_ns", frame_ns),
            queue_bytes_max=arguments.unsigned("max_queued_bytes", queued, 62),
            spin_ns=arguments.span_ns("spin_ns", settings.spin_ns(spin_ns)),
        )
        status, text = native.text_of(
            lambda *room: self._library.ofl_server_create(options, self._handle, *room)
        )
        if status == native.INVALID:
            raise ValueError(text)
        native.raise_for(status, text)
        self._record = abi.EventRecord()
        self._lending = threading.Lock()
        self._lent: dict[memory.Handle, int] = {}

    def listen(self, endpoint: str) -> str:
        """Listen there; returns the endpoint as bound (port 0: the port chosen).

        Raises EndpointError (grammar, wildcard without allow_any, not an address of this host) and
        AddressInUseError, which names address and port.
        """
        wanted = parse_endpoint(endpoint)
        if wanted.bind:
            raise EndpointError(
                f"endpoint {endpoint!r}: bind has no meaning for a listener; its address is the host"
            )
        port = ctypes.c_uint16()
        where = (abi.Transport.of(wanted.scheme), wanted.host.encode(), wanted.port, port)
        status, text = native.text_of(
            lambda *room: self._library.ofl_server_listen(self._handle, *where, *room)
        )
        native.raise_for(status, text)
        return str(Endpoint(wanted.scheme, wanted.host, 0 if wanted.scheme == "shm" else port.value))

    @property
    def pointer(self) -> ctypes.c_void_p:
        """The library's handle, for what else of the library works on it."""
        return self._handle

    def register(self, buffer: memory.Buffer) -> None:
        """Before the buffer is lent to replies, and after `listen`; twice is harmless.

        Raises TransportError; its text names the limit that was met and how to raise it.
        """
        status, text = native.text_of(
            lambda *room: self._library.ofl_server_register(self._handle, buffer.handle.pointer, *room)
        )
        native.raise_for(status, text)

    def next_event(self, *, deadline_ns: int) -> Event | None:
        """The next event in order of arrival, or None at the deadline or after `wake`.

        Requests that were cancelled, or whose connection ended, before they were taken are left out.
        Raises ClosedError after close.
        """
        arguments.deadline(deadline_ns)
        status = native.INTERRUPTED
        while status == native.INTERRUPTED:  # signal handlers run between the attempts
            status = self._library.ofl_server_next(self._handle, deadline_ns, self._record)
        if status == native.OK:
            return _event(self._record)
        if status in (native.DEADLINE, native.WOKEN):
            return None
        if status == native.CLOSED:
            raise ClosedError("the server was closed by this side")
        if status == native.BUSY:
            raise TransportError("another thread waits for events of this server")
        raise TransportError(f"the library failed with status {status}")

    def reply(
        self,
        connection: int,
        sequence: int,
        parts: Sequence[Buffer],
        *,
        lent: memory.Buffer | None = None,
    ) -> bool:
        """Send the reply, at most 64 parts; never waits.

        lent: parts that lie in it are sent without a copy, and must stay as they are until it is `idle`.
        False where the connection is gone or the client cancelled.
        Raises FrameTooLargeError, and ValueError for a buffer that is not registered; the call stays open then.
        """
        arguments.unsigned("connection", connection, 64)
        arguments.unsigned("sequence", sequence, 64)
        if (
            whole := buffers.joined(parts)
        ) is not None:  # nothing of it lies in lent, which is judged all the same
            source = lent.handle.pointer if lent is not None else None
            status = self._reply(connection, sequence, abi.Part(whole, len(whole)), 1, source)
        else:
            source = self._lend(lent) if lent is not None else None
            with buffers.Parts(parts) as pinned:
                status = self._reply(connection, sequence, pinned.array, pinned.count, source)
        if status == native.OK:
            return True
        if status == native.UNKNOWN:
            return False
        raise _reply_error(status, connection, parts)

    def _lend(self, buffer: memory.Buffer) -> ctypes.c_void_p:
        """Keeps the memory until it is idle or the server is closed."""
        handle = buffer.handle
        with self._lending:
            self._lent[handle] = self._lent.get(handle, 0) + 1
        return handle.pointer

    def _reply(
        self, connection: int, sequence: int, first: object, count: int, lent: ctypes.c_void_p | None
    ) -> int:
        reply = self._library.ofl_server_reply
        status: int = reply(self._handle, connection, sequence, first, count, lent)
        return status

    def idle(self, buffer: memory.Buffer, *, deadline_ns: int) -> bool:
        """Wait until no reply of this server reads the buffer; False at the deadline.  Raises ClosedError."""
        arguments.deadline(deadline_ns)
        handle = buffer.handle
        with self._lending:
            replies = self._lent.get(handle)
        status = native.INTERRUPTED
        while status == native.INTERRUPTED:  # signal handlers run between the attempts
            status = self._library.ofl_server_idle(self._handle, handle.pointer, deadline_ns)
        if status == native.DEADLINE:
            return False
        if status != native.OK:
            raise _reply_error(status, 0, ())
        with self._lending:
            if replies is not None and self._lent.get(handle) == replies:  # nobody lent it again meanwhile
                del self._lent[handle]
        return True

    def disconnect(self, connection: int, reason: str) -> None:
        """End a connection; the client is told why (at most 240 ASCII characters).  Harmless if gone."""
        arguments.unsigned("connection", connection, 64)
        self._library.ofl_server_disconnect(self._handle, connection, reason.encode("ascii", "replace"))

    def wake(self) -> None:
        """Make a waiting next_event return None now, or the next one if none waits.

        A Python signal handler may call it.
        """
        if self._handle:
            self._library.ofl_server_wake(self._handle)

    def counters(self) -> dict[str, int]:
        """Totals since the start, by name; docs/transport/limits.md says what each counts."""
        values = (ctypes.c_uint64 * abi.COUNTERS)()
        self._library.ofl_server_counters(self._handle, values)
        return dict(zip(_counter_names(), values, strict=True))

    def close(self) -> None:
        """Close every connection and listener; a waiting next_event raises ClosedError.  Safe twice.

        Clients have a second to take what was sent to them and to hang up.
        """
        if self._handle:
            self._library.ofl_server_close(self._handle)
            with self._lending:
                self._lent.clear()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.ofl_server_free(self._handle)
            self._handle = ctypes.c_void_p()


def _reply_error(status: int, connection: int, parts: Sequence[Buffer]) -> Exception:
    if status == native.TOO_LARGE:
        size = sum(map(len, parts))
        return FrameTooLargeError(f"a reply of {size} bytes is over the limit of connection {connection}")
    if status == native.INVALID and len(parts) > native.PARTS_MAX:
        return ValueError(f"reply: {len(parts)} parts are more than {native.PARTS_MAX}")
    if status == native.INVALID:
        return ValueError("the buffer is not registered with this server")
    if status == native.CLOSED:
        return ClosedError("the server was closed by this side")
    return TransportError(f"the library failed with status {status}")


@functools.cache
def _counter_names() -> tuple[str, ...]:
    return tuple(native.loaded().ofl_counter_name(index).decode() for index in range(abi.COUNTERS))


def _event(record: abi.EventRecord) -> Event:
    if record.kind == _REQUEST:
        return Request(
            record.connection,
            record.sequence,
            _body(record),
            record.received_ns,
            record.reply_bytes_max,
        )
    text = record.text.decode("ascii", "replace")
    if record.kind == _CONNECTED:
        return Connected(record.connection, record.version, text)
    return Disconnected(record.connection, text)


def _body(record: abi.EventRecord) -> memoryview:
    """A small body is copied; a large one stays where it was received, freed with its last reference."""
    if record.capacity == 0:
        return memoryview(ctypes.string_at(record.body, record.body_bytes))
    owner = _owner_type(record.capacity).from_address(record.body)
    return memoryview(owner).cast("B")[: record.body_bytes]


def _free(owner: ctypes.Array[ctypes.c_ubyte]) -> None:
    native.loaded().ofl_body_free(ctypes.addressof(owner))


@functools.cache
def _owner_type(capacity: int) -> type[ctypes.Array[ctypes.c_ubyte]]:
    """An array type that frees its memory; capacities are powers of two, so there are few of them."""
    return type(f"Body{capacity}", (ctypes.c_ubyte * capacity,), {"__del__": _free})
