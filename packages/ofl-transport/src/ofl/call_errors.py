"""What a client says of a call that failed: a status of the library, as the exception with its sentence."""

from collections.abc import Sequence

from ofl import native
from ofl.contract.records import Buffer
from ofl.errors import (
    CancelledError,
    ClosedError,
    DeadlineError,
    FrameTooLargeError,
    OverlapError,
    PeerLostError,
    QuarantinedError,
    TransportError,
)
from ofl.interface import Peer

_OF_THE_CALL: dict[int, tuple[type[TransportError], str]] = {
    native.DEADLINE: (DeadlineError, "{what} did not end before its deadline"),
    native.UNKNOWN: (CancelledError, "{what} is not open (cancelled, or waited for already)"),
    native.CLOSED: (ClosedError, "the connection was closed by this side"),
    native.BUSY: (TransportError, "another thread waits on this connection"),
    native.QUARANTINED: (
        QuarantinedError,
        "a cancelled call of this or another connection may still write into this memory; wait until it is settled",
    ),
    native.OVERLAP: (
        OverlapError,
        "another open call, of this or another connection, owns a part of this memory",
    ),
}


def call_error(
    status: int, what: str, peer: Peer, parts: Sequence[Buffer], *, max_calls: int, reason: str
) -> Exception:
    """The exception for a status that is not OK.  what: the call, for its sentence; reason: of a lost connection."""
    name = peer.endpoint
    if status in _OF_THE_CALL:
        kind, clause = _OF_THE_CALL[status]
        return kind(f"{name}: {clause.format(what=what)}")
    if status == native.LOST:
        return PeerLostError(f"{name}: {reason}")
    if status == native.TOO_LARGE:
        size = sum(map(len, parts))
        return FrameTooLargeError(
            f"{name}: a request of {size} bytes is over the limit of {peer.max_frame_bytes}"
        )
    if status == native.LIMIT:
        return TransportError(f"{name}: {max_calls} calls are open; wait for or cancel some")
    if status == native.INVALID and len(parts) > native.PARTS_MAX:
        return ValueError(f"{what}: {len(parts)} parts are more than {native.PARTS_MAX}")
    if status == native.INVALID:
        return ValueError(
            f"{what}: the memory is not registered with this connection, or the range is not inside it"
        )
    return TransportError(f"{name}: the library failed with status {status}")
