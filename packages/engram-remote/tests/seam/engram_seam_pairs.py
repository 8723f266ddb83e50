"""Stock's embedding with the whole table, and ours over the shards of the same rows: a pair to compare."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from engram_remote.settings import Settings
from engram_remote.vllm_seam.embedding import remote_class
from engram_remote.vllm_seam.place import Place, layers_of
from engram_seam_readers import ShardReader
from engram_seam_tables import Config, Source, as_hf_config, model_config, sources, write_tables

CPU = torch.device("cpu")


def settings_for(folder: Path, endpoint: str = "tcp://192.0.2.1:1", **more: str) -> Settings:
    """Settings of an engine with these tables; more: values by the variable's last part."""
    environ = {"VLLM_ENGRAM_REMOTE": endpoint, "VLLM_ENGRAM_REMOTE_TABLES": str(folder)}
    found = Settings.from_environ(
        environ | {f"VLLM_ENGRAM_REMOTE_{name}": value for name, value in more.items()}
    )
    assert found is not None
    return found


@dataclass
class Pairs:
    """One rank of a model.  stock: the module of `stock_module`."""

    stock: ModuleType
    config: Config
    tables: dict[int, Source]
    folder: Path
    rank: int
    ranks: int
    tokens_max: int = 64
    device: Any = CPU
    reader: Callable[..., Any] = ShardReader
    exchange: Callable[[Any], Any] = lambda device: None

    def __post_init__(self) -> None:
        self.layout = self.stock.EngramLayout(as_hf_config(self.config))
        self.layers = layers_of(self.layout.layer_ids, self.layout.primes)
        self.stock.TP.rank, self.stock.TP.size = self.rank, self.ranks
        self.kind = remote_class(
            self.stock.ParallelEngramEmbedding,
            settings_for(self.folder),
            self.place,
            self.reader,
            self.exchange,
        )

    def place(self) -> Place:
        return Place(self.rank, self.ranks, self.tokens_max, self.layers, self.device)

    def arguments(self, layer: int) -> tuple[int, int, tuple[int, ...]]:
        """What stock's Engram passes to the embedding's constructor."""
        index = self.layout.layer_ids.index(layer)
        [sizes] = [sizes for sizes, one in self.layers.items() if one == layer]
        return self.layout.num_embeddings[index], self.layout.head_dim, sizes

    def stocks(self, layer: int) -> Any:
        """Stock's embedding, its table loaded from the source by stock's own loader."""
        made = self.stock.ParallelEngramEmbedding(*self.arguments(layer))
        values, scales = self.tensors(layer)
        made.weight.weight_loader(made.weight, values)
        made.weight_scale_inv.weight_loader(made.weight_scale_inv, scales)
        return made.to(self.device)

    def stocks_pinned(self, layer: int) -> Any:
        """As `stocks`, with the table where stock keeps an offloaded one: in pinned host memory."""
        made = self.stock.ParallelEngramEmbedding(*self.arguments(layer), cpu_offload=True)
        for param, tensor in zip((made.weight, made.weight_scale_inv), self.tensors(layer), strict=True):
            param.weight_loader(param, tensor)
        return made

    def ours(self, layer: int, **storage: Any) -> Any:
        """The replacement, as constructed."""
        return self.kind(*self.arguments(layer), **storage)

    def tensors(self, layer: int) -> tuple[Any, Any]:
        """The checkpoint's tensors: float8 E4M3 values and E8M0 scales of the whole layer."""
        source = self.tables[layer]
        values = torch.from_numpy(source.values).view(torch.float8_e4m3fn)
        return values, torch.from_numpy(source.scales).view(torch.float8_e8m0fnu)

    def ids(self, layer: int, tokens: int, seed: int = 0) -> Any:
        """i32 [tokens, hash columns]: each column's ids of its own head, as stock's hashing makes them."""
        sizes = torch.tensor(self.arguments(layer)[2])
        offsets = torch.cumsum(sizes, 0) - sizes
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.rand((tokens, len(sizes)), generator=generator)
        return ((drawn * sizes).long() + offsets).int().to(self.device)

    def out(self, embedding: Any, tokens: int, packed: bool = False) -> Any:
        """A poisoned output of either kind."""
        width = embedding.dim + embedding.dim // 32 if packed else embedding.dim
        dtype = torch.uint8 if packed else torch.bfloat16
        shape = (tokens, embedding.part_n_hash_cols, width)
        return (
            torch.full(shape, 0xA5, dtype=torch.uint8)
            .repeat(1, 1, 1 if packed else 2)
            .view(dtype)
            .to(self.device)
        )


def pairs(stock: ModuleType, folder: Path, rank: int, ranks: int = 2, **more: Any) -> Pairs:
    """A rank of a small model whose tables are made in the folder.  model: what `model_config` takes."""
    config = model_config(**more.pop("model", {}))
    tables = sources(config)
    write_tables(folder, config, tables, ranks)
    return Pairs(stock, config, tables, folder, rank, ranks, **more)
