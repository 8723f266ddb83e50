"""The header and the bodies of frames: laid out as the document's tables have them, and judged field by field.

Owns layout and the values that a field may have.  Knows no connection.
"""

import enum
import struct
from dataclasses import astuple, dataclass, fields
from typing import ClassVar, Self

MAGIC = b"OFL1"
HEADER_VERSION = 2
PLACED = 1
"""The only flag there is, on a request."""
TEXT_BYTES_MAX = 240
SLOTS = 256


class WireFaultError(Exception):
    """What came over the wire is not what the document says; the text names the field or the rule."""


def require(holds: bool, fault: str) -> None:
    if not holds:
        raise WireFaultError(fault)


def is_printable(text: bytes) -> bool:
    return all(0x20 <= byte < 0x7F for byte in text)


class Type(enum.IntEnum):
    CONNECT = 1
    ACCEPT = 2
    REFUSE = 3
    REQUEST = 4
    REPLY = 5
    CANCEL = 6
    HEARTBEAT = 7
    CLOSE = 8
    CHALLENGE = 9
    PROOF = 10
    LINK = 11
    CANCELLED = 12


OF_A_CALL = {Type.REQUEST, Type.REPLY, Type.CANCEL, Type.CANCELLED}
WITHOUT_BODY = {Type.CANCEL, Type.HEARTBEAT, Type.CANCELLED}
FROM_CLIENT = {Type.CONNECT, Type.REQUEST, Type.CANCEL, Type.HEARTBEAT, Type.CLOSE, Type.PROOF, Type.LINK}
FROM_SERVER = {
    Type.ACCEPT,
    Type.REFUSE,
    Type.REPLY,
    Type.HEARTBEAT,
    Type.CLOSE,
    Type.CHALLENGE,
    Type.LINK,
    Type.CANCELLED,
}


class Transport(enum.IntEnum):
    TCP = 1
    RDMA = 2
    SHM = 3


class Authentication(enum.IntEnum):
    NONE = 0
    HMAC_SHA_256 = 1


class Refusal(enum.IntEnum):
    HEADER_VERSION = 1
    SERVICE = 2
    VERSION = 3
    LIMITS = 4
    FULL = 5
    AUTHENTICATION = 6
    TRANSPORT = 7


@dataclass(frozen=True)
class Record:
    """A struct of the document: the fields in its order, under its names.  FORMAT: for `struct`, little-endian."""

    FORMAT: ClassVar[str]

    @classmethod
    def size(cls) -> int:
        return struct.calcsize(cls.FORMAT)

    @classmethod
    def rows(cls) -> list[tuple[int, int, str]]:
        """Offset, bytes and name of every field, as a row of the document's table has them."""
        codes = cls.FORMAT.removeprefix("<").split()
        sizes = [struct.calcsize(f"<{code}") for code in codes]
        names = [field.name for field in fields(cls)]
        return [
            (sum(sizes[:index]), size, name)
            for index, (size, name) in enumerate(zip(sizes, names, strict=True))
        ]

    def pack(self) -> bytes:
        return struct.pack(self.FORMAT, *astuple(self))

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Raises WireFaultError for a wrong size, or where `judge` does."""
        require(len(data) == cls.size(), f"{cls.__name__} of {len(data)} bytes, not {cls.size()}")
        made = cls(*struct.unpack(cls.FORMAT, data))
        for field in fields(cls):
            if field.name.startswith("reserved"):
                value = getattr(made, field.name)
                require(
                    not any(value) if isinstance(value, bytes) else value == 0, f"{field.name} is not zero"
                )
        made.judge()
        return made

    def judge(self) -> None:
        """Raises WireFaultError for a value that the document excludes."""


@dataclass(frozen=True)
class FrameHeader(Record):
    FORMAT = "<4s B B H Q I I"
    magic: bytes
    header_version: int
    type: int
    flags: int
    sequence: int
    body_bytes: int
    reserved: int = 0

    def judge(self) -> None:
        require(self.magic == MAGIC, f"magic is {self.magic!r}")
        require(self.header_version == HEADER_VERSION, f"header_version is {self.header_version}")
        require(self.type in set(Type), f"type {self.type} is none")
        require(
            self.flags in ((0, PLACED) if self.type == Type.REQUEST else (0,)),
            f"flags are {self.flags:#x} on a frame of type {self.type}",
        )
        require(
            (self.sequence != 0) == (self.type in OF_A_CALL),
            f"sequence is {self.sequence} on a frame of type {self.type}",
        )
        if self.type in WITHOUT_BODY:
            require(self.body_bytes == 0, f"body_bytes is {self.body_bytes} on a frame of type {self.type}")


@dataclass(frozen=True)
class ConnectBody(Record):
    FORMAT = "<Q I H H I I B B H I 64s 32s"
    boot_nonce: int
    frame_bytes_max: int
    version_min: int
    version_max: int
    heartbeat_ms: int
    loss_ms: int
    transport: int
    authentication: int
    reserved: int
    reserved_2: int
    service: bytes
    nonce: bytes

    def judge(self) -> None:
        require(1024 <= self.frame_bytes_max <= 1 << 30, f"frame_bytes_max is {self.frame_bytes_max}")
        require(self.version_min <= self.version_max, "version_min is over version_max")
        require(10 <= self.heartbeat_ms <= 60_000, f"heartbeat_ms is {self.heartbeat_ms}")
        require(self.loss_ms >= 2 * self.heartbeat_ms, f"loss_ms is {self.loss_ms}")
        require(self.transport in set(Transport), f"transport is {self.transport}")
        require(self.authentication in set(Authentication), f"authentication is {self.authentication}")
        name = self.service.rstrip(b"\0")
        require(bool(name) and is_printable(name), f"service is {self.service!r}")
        if self.authentication:
            require(self.nonce != bytes(32), "nonce is not random")


@dataclass(frozen=True)
class ChallengeBody(Record):
    FORMAT = "<32s"
    nonce: bytes

    def judge(self) -> None:
        require(self.nonce != bytes(32), "nonce is not random")


@dataclass(frozen=True)
class ProofBody(Record):
    FORMAT = "<32s"
    mac: bytes


@dataclass(frozen=True)
class AcceptBody(Record):
    FORMAT = "<Q I H H I B B H 32s"
    boot_nonce: int
    frame_bytes_max: int
    version: int
    reserved: int
    calls_max: int
    transport: int
    authentication: int
    reserved_2: int
    mac: bytes

    def judge(self) -> None:
        require(1024 <= self.frame_bytes_max <= 1 << 30, f"frame_bytes_max is {self.frame_bytes_max}")
        require(1 <= self.calls_max <= SLOTS, f"calls_max is {self.calls_max}")
        require(self.authentication in set(Authentication), f"authentication is {self.authentication}")
        if not self.authentication:
            require(self.mac == bytes(32), "mac is not zeros without authentication")


@dataclass(frozen=True)
class RefuseBody(Record):
    FORMAT = "<I I"
    code: int
    reserved: int = 0

    def judge(self) -> None:
        require(self.code in set(Refusal), f"code {self.code} is none")


@dataclass(frozen=True)
class PlacementRecord(Record):
    FORMAT = "<Q I I"
    address: int
    key: int
    bytes: int


@dataclass(frozen=True)
class RdmaLinkBody(Record):
    FORMAT = "<16s I I I I I I"
    gid: bytes
    queue_pair: int
    packet_sequence: int
    receives: int
    segment_bytes: int
    mtu_bytes: int
    reserved: int = 0

    def judge(self) -> None:
        require(self.gid != bytes(16), "gid is zeros")
        require(0 < self.queue_pair < 1 << 24, f"queue_pair is {self.queue_pair:#x}")
        require(self.packet_sequence < 1 << 24, f"packet_sequence is {self.packet_sequence:#x}")
        require(self.receives > 2, f"receives is {self.receives}, and two of them carry no frame")
        require(self.segment_bytes >= FrameHeader.size(), f"segment_bytes is {self.segment_bytes}")
        require(self.mtu_bytes in (256, 512, 1024, 2048, 4096), f"mtu_bytes is {self.mtu_bytes}")


@dataclass(frozen=True)
class ShmLinkBody(Record):
    FORMAT = "<Q Q"
    ring_bytes: int
    region_bytes: int
