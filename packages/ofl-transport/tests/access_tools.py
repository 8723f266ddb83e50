"""The proofs of a shared key, computed a second time from docs/transport/wire.md, and files that hold keys."""

import hashlib
import hmac
import socket
from pathlib import Path

from transport_frames import (
    ACCEPT_TYPE,
    CHALLENGE_TYPE,
    CONNECT_TYPE,
    PROOF_TYPE,
    connect_body,
    frame,
    read_frame,
)
from transport_harness import Harness

KEY = b"k" * 31 + b"\x00\xff" + b"y" * 7
OTHER_KEY = b"z" * 40


def key_file(folder: Path, key: bytes = KEY, mode: int = 0o600) -> Path:
    """A file that holds the key."""
    path = folder / f"{hashlib.sha256(key).hexdigest()[:8]}.key"
    path.write_bytes(key)
    path.chmod(mode)
    return path


def client_proof(key: bytes, connect: bytes, challenge: bytes) -> bytes:
    return hmac.digest(key, b"ofl client proof\0" + connect + challenge, "sha256")


def server_proof(key: bytes, connect: bytes, challenge: bytes, accept: bytes) -> bytes:
    """accept: the body; whatever its mac is, it is taken as zeros."""
    return hmac.digest(key, b"ofl server proof\0" + connect + challenge + accept[:24] + bytes(32), "sha256")


def offer(harness: Harness, nonce: bytes) -> bytes:
    """The body of a connect frame that asks for proof."""
    return connect_body(transport=harness.backend.number, authentication=1, nonce=nonce)


def challenged(harness: Harness, endpoint: str, connect: bytes) -> tuple[socket.socket, bytes]:
    """A plain socket that was challenged for this offer, and the challenge."""
    connection = harness.raw(endpoint, frame(CONNECT_TYPE, body=connect))
    kind, _, challenge = read_frame(connection)
    assert kind == CHALLENGE_TYPE
    return connection, challenge


def answered(connection: socket.socket, proof: bytes) -> tuple[bool, bytes]:
    """Sends the proof: whether it was accepted, and the body of the answer."""
    connection.sendall(frame(PROOF_TYPE, body=proof))
    kind, _, body = read_frame(connection)
    return kind == ACCEPT_TYPE, body
