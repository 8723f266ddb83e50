"""The negotiation on the control socket, from either end, with proof or without.

Owns what one end tells the other before any data.  Must never go on where the document says that a side refuses.
"""

import hmac
import os
from dataclasses import dataclass, replace
from typing import NoReturn

from rdma.second_opinion.control import FrameSocket
from rdma.second_opinion.frames import Frame, printable
from rdma.second_opinion.records import (
    AcceptBody,
    Authentication,
    ChallengeBody,
    ConnectBody,
    ProofBody,
    Refusal,
    RefuseBody,
    Transport,
    Type,
    require,
)

CLIENT_PROOF = b"ofl client proof\0"
SERVER_PROOF = b"ofl server proof\0"


class RefusedError(Exception):
    """One side said no."""

    def __init__(self, code: Refusal, text: str) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code, self.text = code, text


@dataclass(frozen=True)
class Wishes:
    """What this peer tells of itself; times in milliseconds."""

    service: str
    transport: Transport
    version_min: int = 1
    version_max: int = 1
    frame_bytes_max: int = 1 << 20
    calls_max: int = 256
    heartbeat_ms: int = 500
    loss_ms: int = 60_000
    key: bytes | None = None

    def connect_body(self) -> ConnectBody:
        return ConnectBody(
            boot_nonce=int.from_bytes(os.urandom(8), "little"),
            frame_bytes_max=self.frame_bytes_max,
            version_min=self.version_min,
            version_max=self.version_max,
            heartbeat_ms=self.heartbeat_ms,
            loss_ms=self.loss_ms,
            transport=self.transport,
            authentication=Authentication.NONE if self.key is None else Authentication.HMAC_SHA_256,
            reserved=0,
            reserved_2=0,
            service=self.service.encode("ascii").ljust(64, b"\0"),
            nonce=bytes(32) if self.key is None else os.urandom(32),
        )


@dataclass(frozen=True)
class Agreement:
    """What both ends go by from here on."""

    connect: ConnectBody
    accept: AcceptBody


def proof(key: bytes, of: bytes, *bodies: bytes) -> bytes:
    return hmac.digest(key, of + b"".join(bodies), "sha256")


def connect_over(control: FrameSocket, wishes: Wishes) -> Agreement:
    """The client's side.  Raises RefusedError, by either side."""
    connect = wishes.connect_body()
    control.send(Frame(Type.CONNECT, body=connect.pack()))
    challenge = b""
    if wishes.key is not None:
        challenge = expect_or_refusal(control, Type.CHALLENGE).body
        ChallengeBody.unpack(challenge)
        mac = proof(wishes.key, CLIENT_PROOF, connect.pack(), challenge)
        control.send(Frame(Type.PROOF, body=ProofBody(mac).pack()))
    accept = AcceptBody.unpack(expect_or_refusal(control, Type.ACCEPT).body)
    require(accept.transport == connect.transport, f"transport is {accept.transport}")
    require(accept.authentication == connect.authentication, f"authentication is {accept.authentication}")
    require(accept.frame_bytes_max <= connect.frame_bytes_max, "frame_bytes_max is over what was offered")
    require(connect.version_min <= accept.version <= connect.version_max, f"version is {accept.version}")
    if wishes.key is not None:
        blank = replace(accept, mac=bytes(32)).pack()
        mac = proof(wishes.key, SERVER_PROOF, connect.pack(), challenge, blank)
        if not hmac.compare_digest(accept.mac, mac):
            raise RefusedError(Refusal.AUTHENTICATION, "the server's proof is wrong")
    control.joiner.body_bytes_max = accept.frame_bytes_max
    return Agreement(connect, accept)


def expect_or_refusal(control: FrameSocket, kind: Type) -> Frame:
    """The next frame, of this type.  Raises RefusedError where it is a refusal."""
    frame = control.receive()
    if frame.type == Type.REFUSE:
        body = RefuseBody.unpack(frame.body[: RefuseBody.size()])
        raise RefusedError(Refusal(body.code), printable(frame.body[RefuseBody.size() :]))
    require(frame.type == kind, f"a frame of type {frame.type.name}, not {kind.name}")
    return frame


def accept_over(control: FrameSocket, wishes: Wishes) -> Agreement:
    """The server's side.  Raises RefusedError after it refused."""
    frame = control.expect(Type.CONNECT)
    connect = ConnectBody.unpack(frame.body)
    if connect.service.rstrip(b"\0") != wishes.service.encode("ascii"):
        refuse(control, Refusal.SERVICE, "another service")
    if connect.transport != wishes.transport:
        refuse(control, Refusal.TRANSPORT, "another transport")
    version = min(connect.version_max, wishes.version_max)
    if version < max(connect.version_min, wishes.version_min):
        refuse(control, Refusal.VERSION, "no version in common")
    if (connect.authentication != Authentication.NONE) != (wishes.key is not None):
        refuse(control, Refusal.AUTHENTICATION, "one side proves, the other does not")
    accept = AcceptBody(
        boot_nonce=int.from_bytes(os.urandom(8), "little"),
        frame_bytes_max=min(connect.frame_bytes_max, wishes.frame_bytes_max),
        version=version,
        reserved=0,
        calls_max=wishes.calls_max,
        transport=connect.transport,
        authentication=connect.authentication,
        reserved_2=0,
        mac=bytes(32),
    )
    if wishes.key is not None:
        accept = _proved(control, connect, accept, wishes.key)
    control.joiner.body_bytes_max = accept.frame_bytes_max
    control.send(Frame(Type.ACCEPT, body=accept.pack()))
    return Agreement(connect, accept)


def _proved(control: FrameSocket, connect: ConnectBody, accept: AcceptBody, key: bytes) -> AcceptBody:
    challenge = ChallengeBody(os.urandom(32)).pack()
    control.send(Frame(Type.CHALLENGE, body=challenge))
    given = ProofBody.unpack(control.expect(Type.PROOF).body)
    if not hmac.compare_digest(given.mac, proof(key, CLIENT_PROOF, connect.pack(), challenge)):
        refuse(control, Refusal.AUTHENTICATION, "the proof is wrong")
    return replace(accept, mac=proof(key, SERVER_PROOF, connect.pack(), challenge, accept.pack()))


def refuse(control: FrameSocket, code: Refusal, text: str) -> NoReturn:
    """Say no and close.  Always raises RefusedError."""
    control.send(Frame(Type.REFUSE, body=RefuseBody(code).pack() + text.encode("ascii")))
    control.close()
    raise RefusedError(code, text)
