"""One safetensors file: its header checked, its tensors as views of the mapped file.

Standard library only, so that `identity` runs where neither torch nor numpy can name bfloat16.  Never
copies tensor data and never trusts an offset: what the header says must tile the file exactly.
"""

import json
import mmap
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeGuard

from x86_worker.checkpoint.errors import CheckpointError

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4,
    "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
"""Bytes per element by safetensors' dtype names; sub-byte types have no row bytes and are refused."""

HEADER_BYTES_MAX = 100_000_000
"""The format's own limit on the length of the JSON header."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as it lies in a file.

    dtype: safetensors' name.  data: row-major little-endian bytes, a read-only view of the mapped file that
    keeps the mapping alive.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of the file by name.  Raises CheckpointError on anything but a whole safetensors file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 8:
                raise CheckpointError(f"{path}: {size} bytes are too few for a safetensors file")
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    header_bytes = int.from_bytes(mapped[:8], "little")
    if not 2 <= header_bytes <= min(HEADER_BYTES_MAX, size - 8):
        raise CheckpointError(f"{path}: a header of {header_bytes} bytes does not fit in a file of {size}")
    header = _parsed_header(path, bytes(mapped[8 : 8 + header_bytes]))
    body = mapped[8 + header_bytes :]
    header.pop("__metadata__", None)
    tensors = {name: _tensor(path, name, entry, body) for name, entry in header.items()}
    _check_tiling(path, header, len(body))
    return tensors


def _parsed_header(path: Path, text: bytes) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise CheckpointError(f"{path}: the header names something twice")
        return found

    try:
        header = json.loads(text, object_pairs_hook=unique)
    except ValueError as error:
        raise CheckpointError(f"{path}: the header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is not a JSON object")
    return header


def _tensor(path: Path, name: str, entry: object, body: memoryview) -> StoredTensor:
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{path}: tensor {name} lacks a proper dtype, shape or data_offsets")
    if dtype not in ITEM_BYTES:
        raise CheckpointError(f"{path}: tensor {name} has dtype {dtype}, which is not supported")
    begin, end = offsets
    if end > len(body):
        raise CheckpointError(f"{path}: tensor {name} ends {end - len(body)} bytes after the file does")
    if end - begin != prod(shape) * ITEM_BYTES[dtype]:
        raise CheckpointError(
            f"{path}: tensor {name} of shape {list(shape)} {dtype} cannot take {end - begin} bytes"
        )
    return StoredTensor(path, name, dtype, tuple(shape), body[begin:end])


def _are_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_tiling(path: Path, header: dict[str, object], body_bytes: int) -> None:
    """The format allows no holes and no overlaps: either means that the file is not what its header says."""
    spans = sorted(
        (entry["data_offsets"][0], entry["data_offsets"][1], name)
        for name, entry in header.items()
        if isinstance(entry, dict)
    )
    at = 0
    for begin, end, name in spans:
        if begin != at:
            raise CheckpointError(f"{path}: tensor {name} starts at {begin} where {at} follows")
        at = end
    if at != body_bytes:
        raise CheckpointError(f"{path}: {body_bytes - at} bytes follow the last tensor")
