"""The client end of a connection: `connect` and `Client`.  Implements `ofl.interface.ClientTransport`."""

import ctypes
from collections.abc import Sequence

from ofl import buffers, native
from ofl.calls import Calls
from ofl.contract.records import Buffer
from ofl.endpoint import parse_endpoint
from ofl.errors import CancelledError, DeadlineError, EndpointError, TransportError
from ofl.interface import Peer

HEARTBEAT_NS = 100_000_000
LOSS_NS = 2_000_000_000


def connect(
    endpoint: str,
    *,
    service: str,
    version_min: int,
    version_max: int,
    max_frame_bytes: int,
    deadline_ns: int,
    heartbeat_ns: int = HEARTBEAT_NS,
    loss_ns: int = LOSS_NS,
) -> "Client":
    """Connect and negotiate, all before the deadline (absolute, CLOCK_MONOTONIC nanoseconds).

    service: 1 to 64 printable ASCII characters; versions 0 to 65535; max_frame_bytes: 1024 to 2**30, the
    largest body in either direction; heartbeat_ns: 10 ms to 60 s, how often something is sent; loss_ns: at
    least twice that, how long the peer may be silent before it counts as lost.

    Raises EndpointError, ConnectRefusedError (the peer said no, or nobody listens), DeadlineError and
    PeerLostError; ValueError for versions and max_frame_bytes out of range.
    """
    target = parse_endpoint(endpoint)
    if target.port == 0:
        raise EndpointError(f"endpoint {endpoint!r}: port 0 can be listened on but not connected to")
    options = native.ClientOptions(
        host=target.host.encode(),
        bind=target.bind.encode() if target.bind else None,
        service=service.encode("ascii", "replace"),
        port=target.port,
        version_min=_u16("version_min", version_min),
        version_max=_u16("version_max", version_max),
        frame_bytes_max=_frame_bytes(max_frame_bytes),
        heartbeat_ns=heartbeat_ns,
        loss_ns=loss_ns,
    )
    return Client(str(target), service, options, deadline_ns)


def _u16(name: str, value: int) -> int:
    if not 0 <= value <= 0xFFFF:
        raise ValueError(f"{name} must be from 0 to 65535, not {value}")
    return value


def _frame_bytes(value: int) -> int:
    if not 1024 <= value <= 1 << 30:
        raise ValueError(f"max_frame_bytes must be from 1024 to 2**30, not {value}")
    return value


class Client(Calls):
    """One connection.  One thread at a time may use it, except `close` and `alive`, which any thread may.

    Capacity: at most 256 calls open at once (the server may agree to fewer); every call must end with `wait`
    or `cancel`.  After fork() the child must not use it; its methods raise ClosedError there.
    """

    def __init__(self, endpoint: str, service: str, options: native.ClientOptions, deadline_ns: int) -> None:
        self._handle = ctypes.c_void_p()
        self._library = native.loaded()
        record = native.PeerRecord()
        text = ctypes.create_string_buffer(native.TEXT_BYTES)
        status = native.INTERRUPTED
        while status == native.INTERRUPTED:  # signal handlers run between the attempts
            status = self._library.ofl_client_connect(
                options, deadline_ns, self._handle, record, text, len(text)
            )
        native.raise_for(status, f"{endpoint}: {text.value.decode('ascii', 'replace')}")
        self._peer = Peer(endpoint, service, record.version, record.boot_nonce, record.frame_bytes_max)
        self.peer_address: str = record.address.decode()
        self.local_address: str = record.local_address.decode()
        self.max_calls: int = record.calls_max
        self._sequence = ctypes.c_uint64()
        self._body = ctypes.c_void_p()
        self._body_bytes = ctypes.c_size_t()
        self._cancelled: int | None = None

    @property
    def peer(self) -> Peer:
        """The other end, as negotiated."""
        return self._peer

    @property
    def alive(self) -> bool:
        """False once the connection is known to be lost or closed; True is no promise."""
        return bool(self._library.ofl_client_alive(self._handle))

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        """Send one request of at most 64 parts; returns its sequence number.  The buffers may be reused then.

        Raises FrameTooLargeError (nothing sent), DeadlineError (nothing sent, unless `alive` turned False),
        PeerLostError, or TransportError when as many calls are open as both sides agreed on.
        """
        if (whole := buffers.joined(parts)) is not None:
            status = self._submit(native.Part(whole, len(whole)), 1, deadline_ns)
        else:
            with buffers.Parts(parts) as pinned:
                status = self._submit(pinned.array, pinned.count, deadline_ns)
        if status != native.OK:
            self._raise(status, "submit", parts)
        return self._sequence.value

    def _submit(self, first: object, count: int, deadline_ns: int) -> int:
        submit = self._library.ofl_client_submit
        status = native.INTERRUPTED
        while status == native.INTERRUPTED:  # signal handlers run between the attempts
            status = submit(self._handle, first, count, deadline_ns, self._sequence)
        return status

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        """The body of the reply.  On DeadlineError the call stays open: wait again, or cancel it.

        Raises PeerLostError, CancelledError, ClosedError (closed meanwhile).
        """
        status = native.INTERRUPTED
        while status == native.INTERRUPTED:
            status = self._library.ofl_client_wait(
                self._handle, sequence, deadline_ns, self._body, self._body_bytes
            )
        if status != native.OK:
            self._raise(status, f"call {sequence}")
        return buffers.copy_bytes(self._body.value, self._body_bytes.value)

    def cancel(self, sequence: int) -> None:
        """Forget the call: its reply is dropped when it comes, and the server is told.

        Harmless once the call has ended.
        """
        self._library.ofl_client_cancel(self._handle, sequence)

    def close(self) -> None:
        """Close the connection; a thread inside `wait` or `submit` gets ClosedError.  Twice is harmless."""
        if self._handle:
            self._library.ofl_client_close(self._handle)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.ofl_client_free(self._handle)
            self._handle = ctypes.c_void_p()

    def _raise(self, status: int, what: str, parts: Sequence[Buffer] = ()) -> None:
        name = self._peer.endpoint
        if status == native.TOO_LARGE:
            size = sum(map(len, parts))
            text = f"{name}: a request of {size} bytes is over the limit of {self._peer.max_frame_bytes}"
        elif status == native.LOST:
            text = f"{name}: {self._reason()}"
        elif status == native.CLOSED:
            text = f"{name}: the connection was closed by this side"
        elif status == native.DEADLINE:
            raise DeadlineError(f"{name}: {what} did not end before its deadline")
        elif status == native.UNKNOWN:
            raise CancelledError(f"{name}: {what} is not open (cancelled, or waited for already)")
        elif status == native.INVALID:
            raise ValueError(f"{what}: {len(parts)} parts are more than {native.PARTS_MAX}")
        elif status == native.LIMIT:
            raise TransportError(f"{name}: {self.max_calls} calls are open; wait for or cancel some")
        elif status == native.BUSY:
            raise TransportError(f"{name}: another thread waits on this connection")
        else:
            text = f"{name}: the library failed with status {status}"
        native.raise_for(status, text)

    def _reason(self) -> str:
        text = ctypes.create_string_buffer(native.TEXT_BYTES)
        self._library.ofl_client_reason(self._handle, text, len(text))
        return text.value.decode("ascii", "replace")
