"""The messages of `engram-v1` as frozen values.

Construction does not validate: `codec` checks on the way out and on the way in, so that either end refuses the same
things with the same words.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ofl.contract.engram_v1.layout import LookupFlag, Op, Status
from ofl.contract.records import Buffer, printable

ID_BYTES = 4
"""Bytes of one id: u32, little-endian."""


@dataclass(frozen=True)
class OpenLayer:
    """One shard that a connection reads: rows row_start .. row_end-1 of the model's layer."""

    layer: int
    row_start: int
    row_end: int


@dataclass(frozen=True)
class Open:
    """Binds a connection.  identity: 32 bytes.  columns, scales: bytes of a row.  batch_rows_max: of one LOOKUP."""

    identity: bytes
    columns: int
    scales: int
    rank: int
    ranks: int
    batch_rows_max: int
    layers: tuple[OpenLayer, ...]


@dataclass(frozen=True)
class OpenReply:
    """What the server is and how much it takes.  identity: 32 bytes.  calls_max: unanswered LOOKUPs at once."""

    identity: bytes
    boot: int
    batch_rows_max: int
    calls_max: int


@dataclass(frozen=True)
class LookupPart:
    """Ids of one layer.  layer: position in OPEN's layers.  ids: u32 each, little-endian; see `pack_ids`."""

    layer: int
    ids: Buffer

    @property
    def rows(self) -> int:
        return len(self.ids) // ID_BYTES


@dataclass(frozen=True)
class Lookup:
    """Asks for the rows of one or more layers, in the order of the ids."""

    parts: tuple[LookupPart, ...]
    flags: LookupFlag = LookupFlag.NONE

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True)
class Planes:
    """Rows of one part.  values: rows x columns bytes.  scales: rows x scales bytes.  Both in the order of the ids."""

    values: Buffer
    scales: Buffer


@dataclass(frozen=True)
class LookupReply:
    """The rows of a LOOKUP, part by part.

    checksum: XXH3 (64 bits) of what follows the head, its seed XXH3 of the LOOKUP's body, whose seed is XXH3 of the
    OPEN's body (seed 0); 0 unless it was asked for.  gather_ns: the server's own time.
    """

    parts: tuple[Planes, ...]
    flags: LookupFlag = LookupFlag.NONE
    checksum: int = 0
    gather_ns: int = 0


@dataclass(frozen=True)
class Stats:
    """Asks for the server's counters; needs no OPEN."""


@dataclass(frozen=True)
class StatsReply:
    """text: a JSON object, UTF-8."""

    text: str


@dataclass(frozen=True)
class Refused:
    """A message was refused.  field: what is at fault, as the contract spells it.  detail: one clause."""

    op: Op
    status: Status
    field: str
    detail: str

    @property
    def said(self) -> str:
        """Field and clause as a log may repeat them; both are the peer's words."""
        return printable(f"{self.field}: {self.detail}")


@dataclass(frozen=True)
class Envelope:
    """What the header says of a message: operation, the client's number for it, and for replies the status."""

    op: Op
    batch: int
    status: Status = Status.OK


Request = Open | Lookup | Stats
Reply = OpenReply | LookupReply | StatsReply | Refused
Parts = Sequence[Buffer]
"""A message as scatter-gather parts, in order."""


def pack_ids(ids: Iterable[int]) -> bytes:
    """Ids as `LookupPart` takes them.  Raises struct.error where one is not 0 .. 2**32-1."""
    numbers = tuple(ids)
    return struct.pack(f"<{len(numbers)}I", *numbers)
