"""Fixed little-endian records without hidden padding: the notation in which the contracts are written.

A record is declared once as a tuple of `Field`s.  Packing, unpacking, sizes, offsets and the generated tables
in docs/contract all come from that declaration.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Buffer = bytes | bytearray | memoryview
"""Anything whose bytes can be read in place; memoryviews must be contiguous and of format 'B'."""

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "f32": "f"}
_SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "f32": 4}


def printable(text: str) -> str:
    """A peer's text for a log or a terminal: nothing in it begins a line or a control sequence there."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


class ContractError(ValueError):
    """What a peer sent, or what we were about to send, is not allowed.

    field: name of the field at fault, as the contract's tables spell it.
    detail: one clause that says what is wrong with it, with the value.
    """

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail


@dataclass(frozen=True)
class Field:
    """One field: `kind` is u8, u16, u32, u64, i32, f32, or bytesN for N raw bytes.

    Reserved fields (their names begin with "reserved") must be zero.
    """

    name: str
    kind: str
    meaning: str

    @property
    def code(self) -> str:
        return f"{self.size}s" if self.kind.startswith("bytes") else _CODES[self.kind]

    @property
    def size(self) -> int:
        return int(self.kind[5:]) if self.kind.startswith("bytes") else _SIZES[self.kind]

    @property
    def alignment(self) -> int:
        return 1 if self.kind.startswith("bytes") else self.size

    @property
    def reserved(self) -> bool:
        return self.name.startswith("reserved")


class Record:
    """A named fixed layout.  Construction fails on a misaligned field or a size that is no multiple of 8.

    Values travel as a *row*: those of the fields that are not reserved, in order of declaration (`names`).
    """

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields = fields
        self.offsets: dict[str, int] = {}
        offset = 0
        for field in fields:
            if offset % field.alignment:
                raise TypeError(f"{name}.{field.name} at offset {offset} is not aligned to {field.alignment}")
            if field.name in self.offsets:
                raise TypeError(f"{name}.{field.name} is declared twice")
            self.offsets[field.name] = offset
            offset += field.size
        if offset % 8:
            raise TypeError(f"{name} is {offset} bytes long, which is not a multiple of 8")
        self.size = offset
        self.names = tuple(field.name for field in fields if not field.reserved)
        # Two views of the same bytes: the values (reserved fields are pad bytes, packed as zeros), and the
        # reserved bytes alone.
        self._values = struct.Struct("<" + "".join(f"{f.size}x" if f.reserved else f.code for f in fields))
        self._reserved = struct.Struct("<" + "".join(("B" if f.reserved else "x") * f.size for f in fields))

    def pack_row(self, *row: object) -> bytes:
        """Bytes of one record.  Raises ContractError naming the field whose value does not fit."""
        try:
            return self._values.pack(*row)
        except (struct.error, OverflowError):
            raise self._unfit(row) from None

    def pack(self, values: Mapping[str, object]) -> bytes:
        """As `pack_row`, with the values by field name.  Raises ContractError naming a missing or unfit
        one."""
        try:
            row = [values[name] for name in self.names]
        except KeyError as error:
            raise ContractError(f"{self.name}.{error.args[0]}", "no value is given") from None
        return self.pack_row(*row)

    def row(self, data: Buffer, offset: int = 0) -> tuple[Any, ...]:
        """The values of the record at offset.

        Raises ContractError when the bytes end early or a reserved field is not zero.
        """
        if len(data) - offset < self.size:
            have = max(len(data) - offset, 0)
            raise ContractError(self.name, f"{have} bytes where the record needs {self.size}")
        if any(self._reserved.unpack_from(data, offset)):
            raise self._not_reserved(data, offset)
        return self._values.unpack_from(data, offset)

    def unpack(self, data: Buffer, offset: int = 0) -> dict[str, Any]:
        """As `row`, by field name."""
        return dict(zip(self.names, self.row(data, offset), strict=True))

    def _not_reserved(self, data: Buffer, offset: int) -> ContractError:
        for field in self.fields:
            start = offset + self.offsets[field.name]
            if field.reserved and any(data[start : start + field.size]):
                return ContractError(f"{self.name}.{field.name}", "a reserved field must be zero")
        raise AssertionError("a reserved byte is set, but in no reserved field")

    def _unfit(self, row: tuple[object, ...]) -> ContractError:
        if len(row) != len(self.names):
            raise AssertionError(f"{self.name} has {len(self.names)} values, not {len(row)}")
        for field in self.fields:
            if field.reserved:
                continue
            value, row = row[0], row[1:]
            try:
                struct.pack("<" + field.code, value)
            except (struct.error, OverflowError) as error:
                detail = f"{value!r} does not fit in {field.kind} ({error})"
                return ContractError(f"{self.name}.{field.name}", detail)
        raise AssertionError("the record packs field by field but not whole")
