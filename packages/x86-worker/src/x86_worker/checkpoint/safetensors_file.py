"""One safetensors file: its header checked, its tensors read when they are asked for.

Standard library only, so that `identity` runs where neither torch nor numpy can name bfloat16.  Never
trusts an offset: what the header says must tile the file exactly.  Reads rather than maps, so that a file
which somebody cuts short is a refusal and no fatal signal.
"""

import json
import os
import weakref
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeGuard

from ofl.files import plain_descriptor

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


class _OpenFile:
    """A file that stays open as long as any of its tensors lives, and notices when it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = plain_descriptor(path)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
        weakref.finalize(self, os.close, self._descriptor)
        self._stamp = self._current_stamp()

    @property
    def size(self) -> int:
        """Bytes of the file when it was opened."""
        return self._stamp[0]

    def read(self, offset: int, size: int) -> bytes:
        """Exactly size bytes; raises CheckpointError where the file is no longer what was opened."""
        parts, end = [], offset + size
        while offset < end:
            part = os.pread(self._descriptor, end - offset, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
        if offset < end or self._current_stamp() != self._stamp:
            raise CheckpointError(f"{self.path}: changed while it was being read")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _current_stamp(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as it lies in a file.

    dtype: safetensors' name.  byte_count: of the tensor, at offset in the file.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    source: _OpenFile
    offset: int
    byte_count: int

    @property
    def data(self) -> bytes:
        """Row-major little-endian bytes, read anew each time.  Raises CheckpointError if the file has
        changed.
        """
        return self.source.read(self.offset, self.byte_count)


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of the file by name.  Raises CheckpointError on anything but a whole safetensors file."""
    file = _OpenFile(path)
    if file.size < 8:
        raise CheckpointError(f"{path}: {file.size} bytes are too few for a safetensors file")
    header_bytes = int.from_bytes(file.read(0, 8), "little")
    if not 2 <= header_bytes <= min(HEADER_BYTES_MAX, file.size - 8):
        raise CheckpointError(f"{path}: a header of {header_bytes} bytes does not fit in {file.size} bytes")
    header = _parsed_header(path, file.read(8, header_bytes))
    header.pop("__metadata__", None)
    tensors = {name: _tensor(file, 8 + header_bytes, name, entry) for name, entry in header.items()}
    _check_tiling(tensors, 8 + header_bytes, file)
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


def _tensor(file: _OpenFile, body: int, name: str, entry: object) -> StoredTensor:
    """One entry of the header, checked.  body: where the tensors begin in the file."""
    where = f"{file.path}: tensor {name}"
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{where} lacks a proper dtype, shape or data_offsets")
    if dtype not in ITEM_BYTES:
        raise CheckpointError(f"{where} has dtype {dtype}, which is not supported")
    begin, end = offsets
    if body + end > file.size:
        raise CheckpointError(f"{where} ends {body + end - file.size} bytes after the file does")
    if end - begin != prod(shape) * ITEM_BYTES[dtype]:
        raise CheckpointError(f"{where} of shape {shape} {dtype} cannot take {end - begin} bytes")
    return StoredTensor(file.path, name, dtype, tuple(shape), file, body + begin, end - begin)


def _are_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_tiling(tensors: dict[str, StoredTensor], body: int, file: _OpenFile) -> None:
    """The format allows no holes and no overlaps: either means that the file is not what its header says."""
    at = body
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.byte_count)):
        if tensor.offset != at:
            raise CheckpointError(
                f"{file.path}: tensor {tensor.name} starts at {tensor.offset - body} where {at - body} follows"
            )
        at += tensor.byte_count
    if at != file.size:
        raise CheckpointError(f"{file.path}: {file.size - at} bytes follow the last tensor")
