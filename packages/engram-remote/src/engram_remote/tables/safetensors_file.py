"""One safetensors file: its header checked, slices of its tensors read when they are asked for.

Own code, since the safetensors package gives float8 tensors through torch alone and whole.  Never trusts an
offset: what the header says must tile the file exactly.  Reads rather than maps, so that a file which somebody
cuts short is a refusal and no fatal signal.
"""

import json
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray
from ofl.files import plain_descriptor

from engram_remote.tables.errors import SourceError
from engram_remote.tables.files import show_later_stores

HEADER_BYTES_MAX = 100_000_000
"""The format's own limit on the length of the JSON header."""
ITEM_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits per element by safetensors' dtype names: other tensors of the file are not read, but their sizes are checked."""


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies.  dtype: safetensors' name.  offset: in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    byte_count: int


class SafetensorsFile:
    """An open file.  tensors: by name.  Raises SourceError on anything but a whole safetensors file, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = plain_descriptor(path)
        try:
            show_later_stores(self._descriptor)
            self.stamp = self._stamp_now()
            self.tensors = self._read_header()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file.  May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def rows(self, tensor: StoredTensor, start: int, end: int) -> NDArray[np.uint8]:
        """Rows start .. end-1 of a two-dimensional tensor of one-byte elements, as u8.

        Raises SourceError where the file is no longer what was opened.
        """
        width = tensor.shape[1]
        assert 0 <= start <= end <= tensor.shape[0]
        data = bytearray((end - start) * width)
        self.read_into(tensor.offset + start * width, memoryview(data))
        return np.frombuffer(data, np.uint8).reshape(end - start, width)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill target from offset on.  Raises SourceError where the file ended early or has changed."""
        done = 0
        while done < len(target):
            try:
                got = os.preadv(self._descriptor, [target[done:]], offset + done)
            except OSError as error:
                raise SourceError(f"{self.path}: cannot be read ({error.strerror})") from error
            if not got:
                break
            done += got
        if done < len(target) or self._stamp_now() != self.stamp:
            raise SourceError(f"{self.path}: changed while it was being read")

    def _stamp_now(self) -> tuple[int, int, int, int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev

    def _read_header(self) -> dict[str, StoredTensor]:
        size = self.stamp[0]
        if size < 8:
            raise SourceError(f"{self.path}: {size} bytes are too few for a safetensors file")
        prefix = bytearray(8)
        self.read_into(0, memoryview(prefix))
        header_bytes = int.from_bytes(prefix, "little")
        if not 2 <= header_bytes <= min(HEADER_BYTES_MAX, size - 8):
            raise SourceError(f"{self.path}: a header of {header_bytes} bytes does not fit in {size} bytes")
        text = bytearray(header_bytes)
        self.read_into(8, memoryview(text))
        header = _parsed_header(self.path, bytes(text))
        header.pop("__metadata__", None)
        body = 8 + header_bytes
        tensors = {name: _tensor(self.path, size, body, name, entry) for name, entry in header.items()}
        _check_tiling(self.path, tensors, body, size)
        return tensors


def _parsed_header(path: Path, text: bytes) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise SourceError(f"{path}: the header names something twice")
        return found

    try:
        header = json.loads(text, object_pairs_hook=unique)
    except SourceError:
        raise
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: the header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise SourceError(f"{path}: the header is not a JSON object")
    return header


def _tensor(path: Path, size: int, body: int, name: str, entry: object) -> StoredTensor:
    """One entry of the header, checked.  body: where the tensors begin in the file."""
    where = f"{path}: tensor {name}"
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise SourceError(f"{where} lacks a proper dtype, shape or data_offsets")
    if dtype not in ITEM_BITS:
        raise SourceError(f"{where} has dtype {dtype}, which is not known")
    begin, end = offsets
    if body + end > size:
        raise SourceError(f"{where} ends {body + end - size} bytes after the file does")
    if (end - begin) * 8 != prod(shape) * ITEM_BITS[dtype]:
        raise SourceError(f"{where} of shape {shape} {dtype} cannot take {end - begin} bytes")
    return StoredTensor(name, dtype, tuple(shape), body + begin, end - begin)


def _are_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_tiling(path: Path, tensors: dict[str, StoredTensor], body: int, size: int) -> None:
    """The format allows no holes and no overlaps: either means that the file is not what its header says."""
    at = body
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.byte_count)):
        if tensor.offset != at:
            raise SourceError(
                f"{path}: tensor {tensor.name} starts at {tensor.offset - body} where {at - body} follows"
            )
        at += tensor.byte_count
    if at != size:
        raise SourceError(f"{path}: {size - at} bytes follow the last tensor")
