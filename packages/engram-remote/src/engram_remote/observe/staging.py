"""What lies in a staging after a lookup, by the contract's layout alone."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ofl.contract.engram_v1.layout import (
    HEADER,
    LOOKUP_REPLY,
    MAGIC,
    REPLY_HEAD_BYTES,
    Kind,
    Op,
    Status,
    plane_bytes,
)
from ofl.contract.records import ContractError


@dataclass(frozen=True)
class StagingBytes:
    """Memory of this process that rows are written to, for as long as the reader lives."""

    address: int
    size: int

    def head(self) -> bytes:
        """The place of a reply's head."""
        return self._at(0, min(REPLY_HEAD_BYTES, self.size))

    def planes(self, counts: Sequence[int], columns: int, scales: int) -> Iterator[bytes]:
        """Of each part of so many rows: its values plane, then its scales plane, without what pads them.

        Raises ValueError where they do not fit.
        """
        at = REPLY_HEAD_BYTES
        for count in counts:
            part = []
            for width in (columns, scales):
                part.append(self._at(at, count * width))
                at += plane_bytes(count, width)
            yield b"".join(part)

    def _at(self, start: int, size: int) -> bytes:
        if start + size > self.size:
            raise ValueError(f"{start + size} bytes of rows do not fit in a staging of {self.size}")
        return ctypes.string_at(self.address + start, size)


def replied(before: bytes, after: bytes, rows: int) -> bool:
    """Whether another head than before is there, and it is that of a whole answer to a lookup of so many rows.

    A head has the lookup's number and what the gathering took in nanoseconds, so that no two are alike.
    """
    if before == after or len(after) < REPLY_HEAD_BYTES:
        return False
    try:
        head, reply = HEADER.unpack(after), LOOKUP_REPLY.unpack(after, HEADER.size)
    except ContractError:
        return False
    kinds = (head["magic"], head["op"], head["kind"], head["status"], reply["rows"])
    return kinds == (MAGIC, Op.LOOKUP, Kind.REPLY, Status.OK, rows)
