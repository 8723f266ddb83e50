"""Tiny tables for tests: a checkpoint in safetensors, and what its rows must be, read from it through numpy.

Every table holds all 256 bytes among its values, NaN included, and all 256 among its scales.  Expected rows
come from the safetensors file alone, never from shards or a server.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bytes2D = NDArray[np.uint8]

POISON = 0xA5
"""What staging holds before a lookup: a byte that was not written stays visible."""

STOCK_NAMES = ("layers.{layer}.engram.embed.weight", "layers.{layer}.engram.embed.scale")
"""As released checkpoints have them: values, scales."""
VLLM_NAMES = (
    "model.layers.{layer}.engram.embed_tokens.weight",
    "model.layers.{layer}.engram.embed_tokens.weight_scale_inv",
)
"""As vLLM's parameters are called."""


def make_table(
    rows: int, columns: int = 256, scale_block: int = 32, seed: int = 0
) -> tuple[Bytes2D, Bytes2D]:
    """Values [rows, columns] and scales [rows, columns / scale_block], u8; all 256 bytes occur in both.

    Raises ValueError where the table is too small for that.
    """
    random = np.random.default_rng(seed)
    made = []
    for width in (columns, columns // scale_block):
        if rows * width < 256:
            raise ValueError(f"{rows} rows of {width} bytes cannot hold all 256")
        flat = random.integers(0, 256, rows * width, np.uint8)
        flat[random.permutation(rows * width)[:256]] = np.arange(256, dtype=np.uint8)
        made.append(flat.reshape(rows, width))
    return made[0], made[1]


def write_safetensors(path: Path, tensors: dict[str, tuple[str, NDArray[np.uint8]]]) -> None:
    """tensors: name -> (safetensors' dtype name of a one-byte type, array)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in tensors.values():
            file.write(array.tobytes())


def read_tensor(path: Path, name: str) -> NDArray[np.uint8]:
    """A one-byte tensor of a safetensors file, as it is there now; not to be written to."""
    return _tensor_of_life(path, name, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _tensor_of_life(path: Path, name: str, _mtime_ns: int) -> NDArray[np.uint8]:
    data = path.read_bytes()
    body = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:body])[name]
    begin, end = entry["data_offsets"]
    return np.frombuffer(data[body + begin : body + end], np.uint8).reshape(entry["shape"])


@dataclass(frozen=True)
class TinyCheckpoint:
    """A model folder: config.json and one safetensors file per layer behind an index.

    head_sizes: rows of each hash column, by layer.  padding: rows of the tensors that belong to no head.
    """

    folder: Path
    head_sizes: dict[int, tuple[int, ...]]
    columns: int
    scale_block: int
    padding: int
    names: tuple[str, str]

    @property
    def scales(self) -> int:
        return self.columns // self.scale_block

    def rows(self, layer: int) -> int:
        return sum(self.head_sizes[layer])

    def file(self, layer: int) -> Path:
        return self.folder / f"model-{layer:05}.safetensors"

    def rank_rows(self, layer: int, rank: int, ranks: int) -> tuple[int, int]:
        """Row range of a rank, by hand: whole heads, ceil(heads / ranks) each."""
        sizes = self.head_sizes[layer]
        each = (len(sizes) + ranks - 1) // ranks
        return sum(sizes[: rank * each]), sum(sizes[: (rank + 1) * each])

    def expected(self, layer: int, ids: ArrayLike) -> tuple[Bytes2D, Bytes2D]:
        """Values [n, columns] and scales [n, scales] of ids that all exist, from the safetensors file."""
        index = np.asarray(ids, np.int64)
        values, scales = (read_tensor(self.file(layer), name.format(layer=layer)) for name in self.names)
        return values[index], scales[index]

    def expected_of_rank(self, layer: int, rank: int, ranks: int, ids: ArrayLike) -> tuple[Bytes2D, Bytes2D]:
        """As `expected`; zero bytes for ids that are outside the rank's rows, as stock's kernel gives zeros."""
        start, end = self.rank_rows(layer, rank, ranks)
        index = np.asarray(ids, np.int64)
        inside = (index >= start) & (index < end)
        values, scales = self.expected(layer, np.where(inside, index, start))
        values[~inside], scales[~inside] = 0, 0
        return values, scales


def primes_from(start: int, count: int) -> list[int]:
    """The first `count` primes from `start` on, by division: slow, and plainly right."""
    found: list[int] = []
    number = max(start, 2)
    while len(found) < count:
        if all(number % divisor for divisor in range(2, number)):
            found.append(number)
        number += 1
    return found


def tiny_checkpoint(
    folder: Path,
    *,
    layers: tuple[int, ...] = (1, 14),
    heads: int = 2,
    ngrams: int = 3,
    smallest: int = 60,
    columns: int = 256,
    scale_block: int = 32,
    padding: int = 5,
    names: tuple[str, str] = STOCK_NAMES,
    scale_dtype: str = "F8_E8M0",
    seed: int = 0,
) -> TinyCheckpoint:
    """Write a model folder whose layers each have (ngrams - 1) * heads hash columns, of primes from `smallest` on."""
    folder.mkdir(parents=True, exist_ok=True)
    columns_each = (ngrams - 1) * heads
    primes = primes_from(smallest, columns_each * len(layers))
    sizes = {
        layer: tuple(primes[at * columns_each : (at + 1) * columns_each]) for at, layer in enumerate(layers)
    }
    made = TinyCheckpoint(folder, sizes, columns, scale_block, padding, names)
    index: dict[str, str] = {}
    for layer in layers:
        values, scales = make_table(made.rows(layer) + padding, columns, scale_block, seed * 1000 + layer)
        value_name, scale_name = (name.format(layer=layer) for name in names)
        other = np.arange(24, dtype=np.uint8).reshape(4, 6)
        tensors = {
            f"layers.{layer}.ffn.gate.bias": ("U8", other),
            scale_name: (scale_dtype, scales),
            value_name: ("F8_E4M3", values),
        }
        write_safetensors(made.file(layer), tensors)
        index |= dict.fromkeys(tensors, made.file(layer).name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    config = {
        "model_type": "deepseek_v41",
        "engram_layer_ids": list(layers),
        "engram_num_embeddings": [made.rows(layer) + padding for layer in layers],
        "engram_max_ngram_size": ngrams,
        "engram_n_heads": heads,
        "engram_head_dim": columns,
        "engram_vocab_size": smallest,
        "engram_compressed_vocab_size": 1000,
        "engram_pad_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return made
