"""Fixed little-endian records without hidden padding: the notation in which the contracts are written.

A record is declared once as a tuple of `Field`s.  Packing, unpacking, sizes, offsets and the generated tables in
docs/contract all come from that declaration.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

Buffer = bytes | bytearray | memoryview
"""Anything whose bytes can be read in place; memoryviews must be contiguous and of format 'B'."""

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "f32": "f"}
_SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "f32": 4}


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
    """One field: `kind` is u8, u16, u32, u64, i32, f32, or bytesN for N raw bytes.  Reserved fields must be zero."""

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
    """A named fixed layout.  Construction fails if a field is misaligned or the size is not a multiple of 8."""

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields = fields
        self.offsets: dict[str, int] = {}
        offset = 0
        for field in fields:
            if offset % field.alignment:
                raise TypeError(f"{name}.{field.name} at offset {offset} is not aligned to {field.alignment}")
            self.offsets[field.name] = offset
            offset += field.size
        if offset % 8:
            raise TypeError(f"{name} is {offset} bytes long, which is not a multiple of 8")
        self.size = offset
        self._struct = struct.Struct("<" + "".join(field.code for field in fields))
        self._names = tuple(field.name for field in fields)
        self._reserved = tuple(i for i, field in enumerate(fields) if field.reserved)

    def pack(self, values: Mapping[str, object]) -> bytes:
        """Bytes of one record; reserved fields are zero and need no value.

        Raises ContractError naming the field whose value does not fit.
        """
        row: list[object] = []
        for field in self.fields:
            empty: object = bytes(field.size) if field.kind.startswith("bytes") else 0
            row.append(empty if field.reserved else values[field.name])
        try:
            return self._struct.pack(*row)
        except struct.error:
            raise self._unfit(row) from None

    def unpack(self, data: Buffer, offset: int = 0) -> dict[str, object]:
        """Values by field name, reserved ones left out.

        Raises ContractError when the bytes end early or a reserved field is not zero.
        """
        if len(data) - offset < self.size:
            have = max(len(data) - offset, 0)
            raise ContractError(self.name, f"{have} bytes where the record needs {self.size}")
        row = self._struct.unpack_from(data, offset)
        for index in self._reserved:
            value = row[index]
            if any(value) if isinstance(value, bytes) else value != 0:
                raise ContractError(f"{self.name}.{self._names[index]}", "a reserved field must be zero")
        return {name: value for name, value in zip(self._names, row, strict=True) if not name.startswith("reserved")}

    def _unfit(self, row: list[object]) -> ContractError:
        for field, value in zip(self.fields, row, strict=True):
            try:
                struct.pack("<" + field.code, value)
            except struct.error as error:
                return ContractError(f"{self.name}.{field.name}", f"{value!r} does not fit in {field.kind} ({error})")
        raise AssertionError("the record packs field by field but not whole")
