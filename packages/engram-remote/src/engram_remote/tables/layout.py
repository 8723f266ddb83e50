"""The bytes of a shard: one header of 4,096 bytes, then packed rows in id order, then nothing.

A row is `columns` float8 values (E4M3, no infinities) and then `scales` exponents (E8M0), one byte each; row
`id` begins at 4096 + (id - row_start) * (columns + scales).  Integers of the header are little-endian.  Value v
of a row stands for value[v] * 2 ** (scale[v // scale_block] - 127); nothing here computes that, rows are moved
as they are.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ofl.contract.engram_v1.layout import COLUMNS_MAX, RANKS_MAX
from ofl.contract.records import Buffer, ContractError, Field, Record

from engram_remote.tables.errors import ShardError
from engram_remote.tables.heads import ROWS_MAX

Bytes2D = NDArray[np.uint8]
"""Shape [rows, bytes of a row], dtype u8."""

MAGIC = b"ENGRAMSH"
FORMAT_VERSION = 1
HEADER_BYTES = 4096
"""A page, so that rows keep the alignment of the file in memory."""
SCALE_BLOCK = 32
"""Values that share a scale, unless a table says otherwise."""
VALUE_E4M3FN = 1
SCALE_E8M0 = 1

HEADER = Record(
    "shard_header",
    Field("magic", "bytes8", "the bytes 'ENGRAMSH'"),
    Field("format_version", "u32", "of this layout, 1"),
    Field("header_bytes", "u32", "bytes before the first row, 4096"),
    Field("layer", "u32", "the model's layer"),
    Field("rank", "u32", "whose shard it is"),
    Field("ranks", "u32", "shards of the layer"),
    Field("columns", "u32", "values of a row, one byte each"),
    Field("scales", "u32", "scales of a row, one byte each"),
    Field("scale_block", "u32", "values that share a scale; columns = scales * scale_block"),
    Field("row_bytes", "u32", "columns + scales"),
    Field("value_dtype", "u16", "1: float8 E4M3 without infinities"),
    Field("scale_dtype", "u16", "1: E8M0, an exponent with bias 127"),
    Field("row_start", "u64", "id of the first row"),
    Field("row_end", "u64", "and past the last"),
    Field("source_sha256", "bytes32", "digest of what the rows were made from, as in the manifest"),
    Field("reserved0", "bytes4000", ""),
)
assert HEADER.size == HEADER_BYTES


@dataclass(frozen=True)
class ShardHeader:
    """What a shard says about itself.  source_sha256: 32 bytes; the rest as in `HEADER`."""

    layer: int
    rank: int
    ranks: int
    columns: int
    scale_block: int
    row_start: int
    row_end: int
    source_sha256: bytes

    @property
    def scales(self) -> int:
        return self.columns // self.scale_block

    @property
    def row_bytes(self) -> int:
        return self.columns + self.scales

    @property
    def rows(self) -> int:
        return self.row_end - self.row_start

    @property
    def file_bytes(self) -> int:
        """Size of the whole shard."""
        return HEADER_BYTES + self.rows * self.row_bytes


def scales_of(columns: int, scale_block: int) -> int:
    """Scales of a row.  Raises ValueError naming what cannot be."""
    if not 0 < columns <= COLUMNS_MAX:
        raise ValueError(f"columns: {columns} is not 1 to {COLUMNS_MAX}")
    if scale_block < 1 or columns % scale_block:
        raise ValueError(f"columns: {columns} is no multiple of the scale block of {scale_block}")
    return columns // scale_block


def pack_header(header: ShardHeader) -> bytes:
    """4,096 bytes.  Raises ContractError naming a field that does not fit."""
    return HEADER.pack(
        {
            "magic": MAGIC,
            "format_version": FORMAT_VERSION,
            "header_bytes": HEADER_BYTES,
            "value_dtype": VALUE_E4M3FN,
            "scale_dtype": SCALE_E8M0,
            "scales": header.scales,
            "row_bytes": header.row_bytes,
            **{field.name: getattr(header, field.name) for field in fields(header)},
        }
    )


def unpack_header(file: Path, data: Buffer) -> ShardHeader:
    """The header that a shard begins with.

    data: the file's first 4,096 bytes.  Raises ShardError naming file and field on anything that `pack_header`
    does not make.
    """
    try:
        found = HEADER.unpack(data)
    except ContractError as error:
        raise ShardError(file, error.field, error.detail) from error
    fixed = {
        "magic": MAGIC,
        "format_version": FORMAT_VERSION,
        "header_bytes": HEADER_BYTES,
        "value_dtype": VALUE_E4M3FN,
        "scale_dtype": SCALE_E8M0,
    }
    for name, value in fixed.items():
        if found[name] != value:
            raise ShardError(file, name, f"{found[name]!r} where {value!r} is known")
    header = ShardHeader(**{field.name: found[field.name] for field in fields(ShardHeader)})
    try:
        scales = scales_of(header.columns, header.scale_block)
    except ValueError as error:
        raise ShardError(file, "columns", str(error).removeprefix("columns: ")) from error
    for name, value in (("scales", scales), ("row_bytes", header.columns + scales)):
        if found[name] != value:
            raise ShardError(file, name, f"{found[name]} where the columns make it {value}")
    if not (header.ranks <= RANKS_MAX and header.rank < header.ranks):
        raise ShardError(file, "rank", f"{header.rank} is not one of {header.ranks}")
    if not header.row_start < header.row_end <= ROWS_MAX:
        raise ShardError(file, "row_end", f"rows {header.row_start} to {header.row_end} are no range")
    return header


def pack_rows(values: Bytes2D, scales: Bytes2D) -> Bytes2D:
    """[n, columns] and [n, scales], both u8, to [n, columns + scales] u8.

    Raises ValueError where rows are not as many, or the scales do not divide the columns.
    """
    if values.dtype != np.uint8 or scales.dtype != np.uint8 or values.ndim != 2 or scales.ndim != 2:
        raise ValueError("rows: values and scales must be two-dimensional arrays of bytes")
    if len(values) != len(scales):
        raise ValueError(f"rows: {len(values)} of values and {len(scales)} of scales")
    if not scales.shape[1] or values.shape[1] % scales.shape[1]:
        raise ValueError(f"scales: {scales.shape[1]} a row do not divide {values.shape[1]} columns")
    packed = np.empty((len(values), values.shape[1] + scales.shape[1]), np.uint8)
    packed[:, : values.shape[1]] = values
    packed[:, values.shape[1] :] = scales
    return packed


def unpack_rows(packed: Bytes2D, columns: int) -> tuple[Bytes2D, Bytes2D]:
    """Views of the values [n, columns] and of the scales [n, row_bytes - columns] of packed rows."""
    return packed[:, :columns], packed[:, columns:]
