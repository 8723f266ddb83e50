"""A small model's tables: source arrays in memory, their safetensors file, and shards with a manifest on disk.

Expected rows come from the source arrays alone.  The shards are written here by the format's own words, not by the
builder.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from engram_remote.tables.heads import HeadLayout, head_layout
from engram_remote.tables.layout import ShardHeader, pack_header, pack_rows
from engram_remote.tables.manifest import FILE_NAME, Manifest, SyntheticSource, source_digest
from numpy.typing import NDArray

Bytes2D = NDArray[np.uint8]
Config = dict[str, int | list[int]]
"""The engram_* keys of a config.json."""
CHUNK = 1 << 20


@dataclass(frozen=True)
class Source:
    """One layer's tensors: values u8 [num_embeddings, columns] (float8 E4M3 bytes), scales u8 [num_embeddings,
    scales].
    """

    values: Bytes2D
    scales: Bytes2D


def model_config(
    *,
    heads: int = 4,
    ngrams: int = 3,
    columns: int = 64,
    layers: tuple[int, ...] = (1, 14),
    smallest: int = 100,
) -> Config:
    """The engram_* keys of a config.json; heads of `smallest` rows and some more.

    The tensors have rows past those of all heads, as released checkpoints may.
    """
    config: Config = {
        "engram_layer_ids": list(layers),
        "engram_num_embeddings": [1 << 30] * len(layers),
        "engram_max_ngram_size": ngrams,
        "engram_n_heads": heads,
        "engram_head_dim": columns,
        "engram_vocab_size": smallest,
        "engram_compressed_vocab_size": 1000,
        "engram_pad_token_id": 0,
    }
    return config | {"engram_num_embeddings": [layer.rows + 37 for layer in head_layout(config).layers]}


def as_hf_config(config: Config) -> SimpleNamespace:
    """What stock's EngramLayout reads."""
    return SimpleNamespace(**config)


def sources(config: Config, seed: int = 7) -> dict[int, Source]:
    """Random bytes for every layer: each of the 256 bytes occurs among the values and among the scales."""
    rng = np.random.default_rng(seed)
    made = {}
    layout = head_layout(config)
    for layer in layout.layers:
        shape = (layer.num_embeddings, layout.columns)
        values = rng.integers(0, 256, shape, dtype=np.uint8)
        scales = rng.integers(0, 256, (shape[0], shape[1] // 32), dtype=np.uint8)
        for plane in (values, scales):
            spread = np.linspace(0, plane.size - 1, 256).astype(np.int64)
            plane.reshape(-1)[spread] = rng.permutation(256)
            assert len(np.unique(plane)) == 256
        made[layer.layer] = Source(values, scales)
    return made


def write_tables(folder: Path, config: Config, tables: dict[int, Source], ranks: int) -> Manifest:
    """Shards and manifest of the layers in a folder."""
    layout: HeadLayout = head_layout(config)
    folder.mkdir(parents=True, exist_ok=True)
    source = SyntheticSource(kind="synthetic", generator="philox-1", seed=7)
    layers, shards = [], []
    for layer in layout.layers:
        digest = source_digest(layer.layer, source)
        entry = {
            "layer": layer.layer,
            "rows": layer.rows,
            "source": source.model_dump(),
            "source_sha256": digest,
        }
        layers.append(entry)
        for rank in range(ranks):
            start, end = layer.rank_rows(rank, ranks)
            header = ShardHeader(
                layer.layer, rank, ranks, layout.columns, 32, start, end, bytes.fromhex(digest)
            )
            table = tables[layer.layer]
            rows = pack_rows(table.values[start:end], table.scales[start:end])
            data = pack_header(header) + rows.tobytes()
            name = f"layer{layer.layer:03d}-rank{rank}.engram"
            (folder / name).write_bytes(data)
            shards.append(_shard(name, header, data))
    scales = layout.columns // 32
    manifest = Manifest.make(
        columns=layout.columns, scales=scales, scale_block=32, row_bytes=layout.columns + scales, ranks=ranks,
        layers=layers, shards=shards,
    )  # fmt: skip
    (folder / FILE_NAME).write_bytes(manifest.to_json())
    return manifest


def _shard(name: str, header: ShardHeader, data: bytes) -> dict[str, object]:
    chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    return {
        "file": name,
        "layer": header.layer,
        "rank": header.rank,
        "row_start": header.row_start,
        "row_end": header.row_end,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "chunk_bytes": CHUNK,
        "chunks": [hashlib.sha256(chunk).hexdigest() for chunk in chunks],
    }
