"""Frames of the wire, laid out by hand from docs/transport/wire.md, and sockets to speak them on."""

import contextlib
import random
import socket
import struct

from ofl.echo import SERVICE, VERSION
from transport_times import SCALE

HEADER = struct.Struct("<4sBBHQII")  # magic, header version, type, flags, sequence, body bytes, reserved
HEADER_VERSION = 2
CONNECT = struct.Struct("<QIHHIIBBHI64s32s")
ACCEPT = struct.Struct("<QIHHIBBH32s")
(
    CONNECT_TYPE,
    ACCEPT_TYPE,
    REFUSE_TYPE,
    REQUEST_TYPE,
    REPLY_TYPE,
    CANCEL_TYPE,
    HEARTBEAT_TYPE,
    CLOSE_TYPE,
    CHALLENGE_TYPE,
    PROOF_TYPE,
    LINK_TYPE,
    CANCELLED_TYPE,
) = range(1, 13)


def frame(
    kind: int,
    *,
    sequence: int = 0,
    body: bytes = b"",
    magic: bytes = b"OFL1",
    version: int = HEADER_VERSION,
    flags: int = 0,
) -> bytes:
    """One frame, laid out by hand from the documentation."""
    return HEADER.pack(magic, version, kind, flags, sequence, len(body), 0) + body


def connect_body(
    service: str = SERVICE,
    *,
    heartbeat_ms: int = 100,
    loss_ms: int = 2000,
    transport: int = 1,
    authentication: int = 0,
    nonce: bytes = bytes(32),
) -> bytes:
    """The body of a connect frame that an echo server accepts."""
    version = (VERSION, VERSION)
    times = (int(heartbeat_ms * SCALE), int(loss_ms * SCALE))
    name = service.encode()
    return CONNECT.pack(7, 1 << 20, *version, *times, transport, authentication, 0, 0, name, nonce)


def connect_frame(service: str = SERVICE, **fields: int) -> bytes:
    return frame(CONNECT_TYPE, body=connect_body(service, **fields))  # type: ignore[arg-type]


def accept_body(*, transport: int = 1, authentication: int = 0, mac: bytes = bytes(32)) -> bytes:
    """A server that agrees: boot nonce 7, bodies up to 1 MiB, version 1, 256 calls."""
    return ACCEPT.pack(7, 1 << 20, 1, 0, 256, transport, authentication, 0, mac)


def accept_frame(*, transport: int = 1) -> bytes:
    return frame(ACCEPT_TYPE, body=accept_body(transport=transport))


def read_frame(connection: socket.socket) -> tuple[int, int, bytes]:
    """Type, sequence and body of the next frame that is no heartbeat.  Raises EOFError, TimeoutError."""
    while True:
        _, _, kind, _, sequence, size, _ = HEADER.unpack(_read_exactly(connection, HEADER.size))
        body = _read_exactly(connection, size)
        if kind != HEARTBEAT_TYPE:
            return kind, sequence, body


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A valid stream with a few bytes changed, cut off, doubled or put in."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed))
        kind = chance.randrange(4)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[at : at + chance.randrange(1, 40)]
            changed = changed or bytearray(b"\0")
        elif kind == 2:
            changed[at:at] = chance.randbytes(chance.randrange(1, 40))
        else:
            changed[at:at] = changed[max(0, at - 30) : at]
    return bytes(changed)


def finish(connection: socket.socket) -> bytes:
    """Everything the peer still says, until it closes the connection (or resets it)."""
    data = b""
    with contextlib.suppress(ConnectionError), connection:
        while piece := connection.recv(65536):
            data += piece
    return data
