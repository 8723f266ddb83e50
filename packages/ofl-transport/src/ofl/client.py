"""The client end of a connection: `connect` and `Client`.  Implements `ofl.interface.PlacingTransport`."""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, overload

from ofl import abi, arguments, buffers, connecting, memory, native, settings
from ofl.call_errors import call_error
from ofl.calls import Calls
from ofl.contract.records import Buffer
from ofl.endpoint import Endpoint, parse_endpoint
from ofl.errors import EndpointError
from ofl.interface import Peer, Placed

HEARTBEAT_NS = settings.HEARTBEAT.default_ns
LOSS_NS = settings.LOSS.default_ns
SPIN_NS = settings.SPIN.default_ns


def connect(
    endpoint: str,
    *,
    service: str,
    version_min: int,
    version_max: int,
    max_frame_bytes: int,
    deadline_ns: int,
    heartbeat_ns: int | None = None,
    loss_ns: int | None = None,
    spin_ns: int | None = None,
    key_file: str | os.PathLike[str] | None = None,
) -> "Client":
    """Connect and negotiate, all before the deadline (absolute, CLOCK_MONOTONIC nanoseconds).

    service: 1 to 64 printable ASCII characters; versions 0 to 65535; max_frame_bytes: 1024 to 2**30, the
    largest body in either direction; heartbeat_ns: 10 ms to 60 s, how often something is sent; loss_ns: at
    least twice that, how long the peer may be silent before it counts as lost; spin_ns: how long a wait looks
    before it sleeps; None: what OFL_HEARTBEAT_MS, OFL_LOSS_MS and OFL_SPIN_US say, else 50 ms, 250 ms and 50 us.
    key_file: both sides prove that they hold this key, and a server that does not is refused.

    Raises EndpointError, ConnectRefusedError (the peer said no, or nobody listens), DeadlineError,
    PeerLostError, SettingError (an environment variable), TransportError (this host lacks what the wire or the
    key needs); ValueError for numbers out of range and for texts that have other characters than they may.
    """
    target = parse_endpoint(endpoint)
    if not target.connectable:
        raise EndpointError(f"endpoint {endpoint!r}: port 0 can be listened on but not connected to")
    heartbeat_ns, loss_ns = settings.liveness_ns(heartbeat_ns, loss_ns)
    options = abi.ClientOptions(
        host=target.host.encode(),
        bind=target.bind.encode() if target.bind else None,
        service=arguments.text("service", service),
        key_file=arguments.key_path(key_file),
        port=target.port,
        version_min=arguments.unsigned("version_min", version_min, 16),
        version_max=arguments.unsigned("version_max", version_max, 16),
        transport=abi.Transport.of(target.scheme),
        frame_bytes_max=_frame_bytes(max_frame_bytes),
        heartbeat_ns=arguments.span_ns("heartbeat_ns", heartbeat_ns),
        loss_ns=arguments.span_ns("loss_ns", loss_ns),
        spin_ns=arguments.span_ns("spin_ns", settings.spin_ns(spin_ns)),
    )
    return Client(target, service, options, arguments.deadline(deadline_ns))


def _frame_bytes(value: int) -> int:
    if not 1024 <= value <= 1 << 30:
        raise ValueError(f"max_frame_bytes must be from 1024 to 2**30, not {value}")
    return value


@dataclass(frozen=True)
class _Memory:
    """What a call can reach beside its message; kept until it no longer can.  view: of its range."""

    view: memoryview | None
    handles: tuple[memory.Handle, ...]


class Client(Calls):
    """One connection; made by `connect`.  One thread at a time may use it, except `close` and `alive`, which any may.

    Capacity: at most 256 calls open at once (the server may agree to fewer); every call must end with `wait`
    or `cancel`.  After fork() the child must not use it; its methods raise ClosedError there.
    """

    def __init__(
        self, endpoint: Endpoint, service: str, options: abi.ClientOptions, deadline_ns: int
    ) -> None:
        self._handle = ctypes.c_void_p()
        self._library = native.loaded()
        attempt = connecting.Attempt(self._handle)
        attempt.run(options, deadline_ns)
        native.raise_for(attempt.status, f"{endpoint}: {attempt.text}")
        record = attempt.record
        self._peer = Peer(
            str(endpoint),
            service,
            record.version,
            record.boot_nonce,
            record.frame_bytes_max,
            bool(record.authenticated),
            record.wire.decode("ascii", "replace"),
        )
        self.peer_address: str = record.address.decode()
        self.local_address: str = record.local_address.decode()
        self.max_calls: int = record.calls_max
        self._sequence = ctypes.c_uint64()
        self._body = ctypes.c_void_p()
        self._body_bytes = ctypes.c_size_t()
        self._options = abi.CallOptions()
        self._memory: dict[int, _Memory] = {}
        self._unsettled: list[int] = []

    @property
    def peer(self) -> Peer:
        """The other end, as negotiated."""
        return self._peer

    @property
    def alive(self) -> bool:
        """False once the connection is known to be lost or closed; True is no promise."""
        return bool(self._library.ofl_client_alive(self._handle))

    @property
    def pointer(self) -> ctypes.c_void_p:
        """The library's handle, for what else of the library works on it."""
        return self._handle

    @property
    def reason(self) -> str:
        """Why the connection is lost, as a clause; empty while it is not."""
        text = ctypes.create_string_buffer(abi.TEXT_BYTES)
        self._library.ofl_client_reason(self._handle, text, len(text))
        return text.value.decode("ascii", "replace")

    def register(self, buffer: memory.Buffer) -> None:
        """Before the buffer, or a range of it, is used with this connection; twice is harmless.

        Raises TransportError; its text names the limit that was met and how to raise it.
        """
        status, text = native.text_of(
            lambda *room: self._library.ofl_client_register(self._handle, buffer.handle.pointer, *room)
        )
        native.raise_for(status, f"{self._peer.endpoint}: {text}")

    @overload
    def submit(
        self,
        parts: Sequence[Buffer],
        *,
        deadline_ns: int,
        into: memory.Range,
        lent: memory.Buffer | None = None,
    ) -> Placed: ...

    @overload
    def submit(
        self,
        parts: Sequence[Buffer],
        *,
        deadline_ns: int,
        into: memory.Range | None = None,
        lent: memory.Buffer | None = None,
    ) -> int: ...

    def submit(
        self,
        parts: Sequence[Buffer],
        *,
        deadline_ns: int,
        into: memory.Range | None = None,
        lent: memory.Buffer | None = None,
    ) -> int:
        """Send one request of at most 64 parts; returns its sequence number.  The buffers may be reused then.

        into: the reply is placed there, and `wait` gives its bytes; the memory belongs to the call until `wait`
        returned them, or after a `cancel` until the call is settled.  lent: parts that lie in it are sent without a
        copy, and must stay as they are until the call has ended.  Both must be registered.

        Raises FrameTooLargeError (nothing sent), DeadlineError (nothing sent, unless `alive` turned False),
        PeerLostError; QuarantinedError or OverlapError where another call may still write into a part of `into`;
        ValueError for memory that is not registered; TransportError when as many calls are open as both sides
        agreed on.
        """
        arguments.deadline(deadline_ns)
        reached = self._reached(into, lent) if into is not None or lent is not None else None
        options = self._options if reached else None
        if (whole := buffers.joined(parts)) is not None:
            status = self._submit(abi.Part(whole, len(whole)), 1, options, reached, deadline_ns)
        else:
            with buffers.Parts(parts) as pinned:
                status = self._submit(pinned.array, pinned.count, options, reached, deadline_ns)
        if status != native.OK:
            self._raise(status, "submit", parts)
        return self._sequence.value

    def _reached(self, into: memory.Range | None, lent: memory.Buffer | None) -> _Memory:
        """Fills the options of a call that reaches memory."""
        target = into.buffer.handle if into is not None else None
        source = lent.handle if lent is not None else None
        options = self._options
        options.into = target.pointer if target else None
        options.into_offset, options.into_bytes = (into.offset, into.nbytes) if into is not None else (0, 0)
        options.lent = source.pointer if source else None
        handles = tuple(handle for handle in (target, source) if handle is not None)
        return _Memory(into.view if into is not None else None, handles)

    def _submit(
        self,
        first: object,
        count: int,
        options: abi.CallOptions | None,
        reached: _Memory | None,
        deadline_ns: int,
    ) -> int:
        submit = self._library.ofl_client_submit
        status = native.INTERRUPTED
        self._sequence.value = 0
        try:
            while status == native.INTERRUPTED:  # signal handlers run between the attempts
                status = submit(self._handle, first, count, options, deadline_ns, self._sequence)
            if reached and status == native.OK:
                self._memory[self._sequence.value] = reached
        except BaseException:
            # A handler raised: half a request cannot be taken back, so where there is one the connection ends.  A whole
            # one may be answered yet, and what it can reach must stay.
            cancelled = self._library.ofl_client_cancel(self._handle, self._sequence)
            if reached and cancelled == native.QUARANTINED:
                self._memory[self._sequence.value] = reached
                self._note_unsettled(self._sequence.value)
            else:
                self._memory.pop(self._sequence.value, None)
            raise
        return status

    @overload
    def wait(  # type: ignore[overload-overlap]  # a Placed is an int for whoever does not care
        self, sequence: Placed, *, deadline_ns: int
    ) -> memoryview: ...

    @overload
    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray: ...

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray | memoryview:
        """The body of the reply; of a placed call the written part of its range, uncopied.

        On DeadlineError the call stays open: wait again, or cancel it.
        Raises PeerLostError, CancelledError, ClosedError (closed meanwhile).
        """
        arguments.unsigned("sequence", sequence, 64)
        arguments.deadline(deadline_ns)
        status = native.INTERRUPTED
        while status == native.INTERRUPTED:
            status = self._library.ofl_client_wait(
                self._handle, sequence, deadline_ns, self._body, self._body_bytes
            )
        if status != native.OK:
            self._raise(status, f"call {sequence}")
        reached = self._memory.pop(sequence, None) if self._memory else None
        if reached and reached.view is not None:
            return reached.view[: self._body_bytes.value]
        return buffers.copy_bytes(self._body.value, self._body_bytes.value)

    def cancel(self, sequence: int) -> bool:
        """Forget the call: its reply is dropped when it comes, and the server is told.  Harmless once it has ended.

        True: the call is settled, its memory is the caller's again.  False: it is in quarantine, see `settled`.
        """
        arguments.unsigned("sequence", sequence, 64)
        status = self._library.ofl_client_cancel(self._handle, sequence)
        if sequence not in self._memory:
            return True
        if status == native.OK or self.settled(sequence, deadline_ns=0):
            return self._forget(sequence)
        self._note_unsettled(sequence)
        return False

    def _note_unsettled(self, sequence: int) -> None:
        """For a caller who never asks: of what has ended nothing is kept but a bounded rest."""
        self._unsettled.append(sequence)
        if len(self._unsettled) > 2 * self.max_calls:  # at most max_calls of them are in quarantine still
            self._unsettled = [call for call in self._unsettled if not self.settled(call, deadline_ns=0)]

    def settled(self, sequence: int, *, deadline_ns: int) -> bool:
        """Wait until nothing of the peer can reach the memory of a cancelled call; False at the deadline.

        True at once where that is so already: the call had no memory, it ended by its reply, its backend's CPU does the
        placing, or the connection is gone.  Raises ValueError for a call that is still open.
        """
        arguments.deadline(deadline_ns)
        if sequence not in self._memory:  # nor one that does not fit
            return True
        status = native.INTERRUPTED
        while status == native.INTERRUPTED:  # signal handlers run between the attempts
            status = self._library.ofl_client_settled(self._handle, sequence, deadline_ns)
        if status == native.INVALID:
            raise ValueError(f"call {sequence} is open; wait for it or cancel it")
        if status in (native.DEADLINE, native.QUARANTINED):
            return False
        if status != native.OK:
            self._raise(status, f"call {sequence}")
        return self._forget(sequence)

    def _forget(self, sequence: int) -> bool:
        self._memory.pop(sequence, None)
        return True

    def close(self) -> None:
        """Close the connection; a thread inside `wait` or `submit` gets ClosedError.  Twice is harmless.

        After that nothing of the peer can reach any memory of its calls.
        """
        if self._handle:
            self._library.ofl_client_close(self._handle)
            self._memory.clear()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.ofl_client_free(self._handle)
            self._handle = ctypes.c_void_p()

    def _raise(self, status: int, what: str, parts: Sequence[Buffer] = ()) -> NoReturn:
        reason = self.reason if status == native.LOST else ""
        raise call_error(status, what, self._peer, parts, max_calls=self.max_calls, reason=reason)
