"""Where rows come from: the two Engram tensors of each layer of a safetensors checkpoint, read slice by slice.

A source gives what `build` needs and nothing else: the head layout, rows, a description by digest, and stamps that tell
whether anything changed.  `SyntheticTables` is the other source.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ofl.files import read_plain

from engram_remote.tables.errors import SourceError
from engram_remote.tables.files import TEXT_BYTES_MAX
from engram_remote.tables.heads import HeadLayout, LayerHeads, read_head_layout
from engram_remote.tables.layout import SCALE_BLOCK, Bytes2D, pack_rows, scales_of
from engram_remote.tables.manifest import CheckpointSource, SyntheticSource
from engram_remote.tables.safetensors_file import SafetensorsFile, StoredTensor

INDEX = "model.safetensors.index.json"
READ_BYTES = 8 << 20
"""How much of a tensor is read at a time to digest it."""

TENSOR_NAME = re.compile(
    r"(?:language_model\.)?(?:model\.)?layers\.(?P<layer>0|[1-9][0-9]{0,8})\.engram\.embed(?:_tokens)?\."
    r"(?P<part>weight|weight_scale_inv|scale)"
)
"""What vLLM's mapper takes for an Engram table: the checkpoint's `layers.1.engram.embed.weight` and `.scale`,
or its own names `model.layers.1.engram.embed_tokens.weight` and `.weight_scale_inv`, alone or below the vision
model's prefix."""

VALUE_DTYPES = ("F8_E4M3",)
SCALE_DTYPES = ("F8_E8M0", "U8")
"""vLLM takes the bytes of either as they are."""

Advance = Callable[[int], None]
"""Told how many bytes more are done."""


class Source(Protocol):
    """What `build` reads.  Rows are packed, [rows, columns + scales] u8."""

    heads: HeadLayout
    scale_block: int

    def stamps(self) -> list[list[object]]:
        """What would differ if the source were written to: plain JSON values."""

    def describe(self, layer: int, advance: Advance) -> CheckpointSource | SyntheticSource:
        """What the manifest says about the layer's rows; may read all of them."""

    def describe_bytes(self, layer: int) -> int:
        """How many bytes `describe` reads."""

    def read(self, layer: int, start: int, end: int) -> Bytes2D:
        """Packed rows start .. end-1 of a layer."""

    def close(self) -> None:
        """Release what is open."""


@dataclass(frozen=True)
class _Part:
    file: SafetensorsFile
    tensor: StoredTensor


class CheckpointTables:
    """The tables of a checkpoint.

    path: a folder with model.safetensors.index.json or with one .safetensors file, or that file.  config:
    config.json of the model; by default the one beside.  Raises SourceError naming the file and the tensor or
    key, OSError.
    """

    def __init__(self, path: Path, config: Path | None = None, scale_block: int = SCALE_BLOCK) -> None:
        folder = path if path.is_dir() else path.parent
        self.heads = read_head_layout(config or folder)
        self.scale_block = scale_block
        try:
            self._scales = scales_of(self.heads.columns, scale_block)
        except ValueError as error:
            raise SourceError(f"{config or folder}: {error}") from error
        self._files: dict[Path, SafetensorsFile] = {}
        try:
            self._parts = self._find(path, folder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()

    def stamps(self) -> list[list[object]]:
        """Name, size, times, inode and device of each file."""
        return [[file.path.name, *file.stamp] for file in self._files.values()]

    def describe_bytes(self, layer: int) -> int:
        return sum(part.tensor.byte_count for part in self._parts[layer])

    def describe(self, layer: int, advance: Advance) -> CheckpointSource:
        """Digests of both tensors, whole; both are read at once, `READ_BYTES` of each at a time."""
        with ThreadPoolExecutor(2) as pool:
            values, scales = pool.map(lambda part: _digest(part, advance), self._parts[layer])
        rows = self._parts[layer][0].tensor.shape[0]
        return CheckpointSource(kind="safetensors", rows=rows, values_sha256=values, scales_sha256=scales)

    def read(self, layer: int, start: int, end: int) -> Bytes2D:
        """Packed rows; memory for twice the rows while it packs.  Raises SourceError where a file has changed."""
        values, scales = (part.file.rows(part.tensor, start, end) for part in self._parts[layer])
        return pack_rows(values, scales)

    def _find(self, path: Path, folder: Path) -> dict[int, tuple[_Part, _Part]]:
        found: dict[tuple[int, bool], _Part] = {}
        for file_path, names in _engram_names(path, folder).items():
            file = self._files[file_path] = SafetensorsFile(file_path)
            for name in names:
                match = TENSOR_NAME.fullmatch(name)
                assert match
                if name not in file.tensors:
                    raise SourceError(f"{file_path}: tensor {name} is not there, as the index says")
                key = int(match["layer"]), match["part"] == "weight"
                if key in found:
                    raise SourceError(
                        f"{file_path}: tensor {name} is there twice, also as {found[key].tensor.name}"
                    )
                found[key] = _Part(file, file.tensors[name])
        layers = {heads.layer: heads for heads in self.heads.layers}
        if extra := sorted({layer for layer, _ in found} - layers.keys()):
            raise SourceError(
                f"{folder}: has Engram tensors of layer {extra[0]}, which engram_layer_ids lacks"
            )
        return {layer: self._pair(folder, heads, found) for layer, heads in layers.items()}

    def _pair(
        self, folder: Path, heads: LayerHeads, found: dict[tuple[int, bool], _Part]
    ) -> tuple[_Part, _Part]:
        widths = {True: (self.heads.columns, VALUE_DTYPES), False: (self._scales, SCALE_DTYPES)}
        for is_values, (width, dtypes) in widths.items():
            part = found.get((heads.layer, is_values))
            if part is None:
                what = "engram.embed.weight" if is_values else "engram.embed.scale"
                raise SourceError(f"{folder}: layer {heads.layer} has no tensor {what}")
            tensor, wanted = part.tensor, (heads.num_embeddings, width)
            if tensor.dtype not in dtypes:
                raise SourceError(
                    f"{part.file.path}: tensor {tensor.name} is {tensor.dtype}, not {dtypes[0]}"
                )
            if tensor.shape != wanted:
                raise SourceError(
                    f"{part.file.path}: tensor {tensor.name} has shape {list(tensor.shape)}, where the configuration "
                    f"makes it {list(wanted)}"
                )
        return found[heads.layer, True], found[heads.layer, False]


@contextmanager
def checkpoint(
    path: Path, config: Path | None = None, scale_block: int = SCALE_BLOCK
) -> Iterator[CheckpointTables]:
    """`CheckpointTables`, closed at the end."""
    with closing(CheckpointTables(path, config, scale_block)) as tables:
        yield tables


def _engram_names(path: Path, folder: Path) -> dict[Path, list[str]]:
    """Names of Engram tensors by file, from the index or from the one file's header."""
    index = folder / INDEX
    if path.is_dir() and index.exists():
        return _from_index(index)
    files = sorted(folder.glob("*.safetensors")) if path.is_dir() else [path]
    if len(files) != 1:
        raise SourceError(
            f"{folder}: {INDEX} or a single .safetensors file is needed, and there are {len(files)}"
        )
    with closing(SafetensorsFile(files[0])) as file:
        return {files[0]: [name for name in file.tensors if TENSOR_NAME.fullmatch(name)]}


def _from_index(index: Path) -> dict[Path, list[str]]:
    try:
        weight_map = json.loads(read_plain(index, TEXT_BYTES_MAX))["weight_map"]
        pairs = list(weight_map.items())
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{index}: weight_map: is not an object of tensor names and files") from error
    found: dict[Path, list[str]] = {}
    for name, file in pairs:
        if not TENSOR_NAME.fullmatch(name):
            continue
        if not isinstance(file, str) or Path(file).name != file:
            raise SourceError(
                f"{index}: weight_map: {name} names {file!r}, which is no file beside the index"
            )
        found.setdefault(index.parent / file, []).append(name)
    return found


def _digest(part: _Part, advance: Advance) -> str:
    digest, at = hashlib.sha256(), 0
    buffer = memoryview(bytearray(min(READ_BYTES, part.tensor.byte_count)))
    while at < part.tensor.byte_count:
        piece = buffer[: part.tensor.byte_count - at]
        part.file.read_into(part.tensor.offset + at, piece)
        digest.update(piece)
        at += len(piece)
        advance(len(piece))
    return digest.hexdigest()
