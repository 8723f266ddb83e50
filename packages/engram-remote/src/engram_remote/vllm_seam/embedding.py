"""The replacement of stock's `ParallelEngramEmbedding`: the same module without its table.

Stock's own constructor runs and sets what stock's `Engram` reads; only the table is left out, its tensors are skipped
at load, and `lookup` first brings the rows into staging and then calls stock's own `lookup` there.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from engram_remote.settings import Settings
from engram_remote.tables.errors import ShardError
from engram_remote.tables.layout import HEADER_BYTES
from engram_remote.vllm_seam.errors import SeamError
from engram_remote.vllm_seam.feed import LayerFeed
from engram_remote.vllm_seam.place import Place, engine_place
from engram_remote.vllm_seam.reader import OpenReader, open_client
from engram_remote.vllm_seam.refusals import refuse_groups
from engram_remote.vllm_seam.report import say_saved
from engram_remote.vllm_seam.stream import Exchange, choose_exchange
from engram_remote.vllm_seam.tables import RemoteTables, tables_for

VALUES_DTYPES = (torch.float8_e4m3fn,)
SCALES_DTYPES = (torch.uint8, torch.float8_e8m0fnu)
SAMPLED_ROWS = 64
"""Rows of the checkpoint's tensors that are compared with the local shard at load; all others are never touched."""


class RemoteRows:
    """Mixed in before stock's class.  The class attributes below are set by `remote_class`."""

    remote_settings: Settings
    remote_stock: Any
    remote_place: Callable[[], Place]
    remote_reader: OpenReader
    remote_exchange: Callable[[Any], Exchange | None]

    def __init__(
        self,
        num_embeddings: int,
        dim: int,
        head_sizes: tuple[int, ...],
        block_size: int = 32,
        *storage: Any,
        **named: Any,
    ) -> None:
        """As stock's constructor of this vLLM.  Raises SeamError, ManifestError, ShardError, TransportError."""
        kind, head_sizes = type(self), tuple(head_sizes)
        place = kind.remote_place()
        stocks: Any = super().__init__
        with _without_stocks_word(kind.remote_stock):
            stocks(num_embeddings, dim, head_sizes, block_size, *storage, **named)
        refuse_groups(self)
        self._open(place, head_sizes)

    def _open(self: Any, place: Place, head_sizes: tuple[int, ...]) -> None:
        kind = type(self)
        layer = place.layers.get(head_sizes, -1)
        # All layers of a model have as many heads, so this holds for the layers to come.
        rows_max = place.tokens_max * self.part_n_hash_cols
        make = partial(
            RemoteTables, kind.remote_settings, place, rows_max, kind.remote_reader, kind.remote_exchange
        )
        tables = tables_for(kind.remote_settings, place, layer, make)
        feed = tables.feed(self, head_sizes)
        self.remote_layer, self.remote_rows = layer, sum(head_sizes)
        self._shard = tables.manifest.shard(layer, place.rank)
        # Past nn.Module's bookkeeping: the view below must not appear among the model's modules.
        object.__setattr__(self, "remote_tables", tables)
        object.__setattr__(self, "_feed", feed)
        object.__setattr__(self, "_view", _staging_view(kind.remote_stock, self, feed))
        reached, wire = tables.reader.connected()
        say_saved(
            layer,
            self.part_num_embeddings,
            self.dim + self.dim // self.block_size,
            feed.host_bytes,
            "pinned host memory" if getattr(self, "cpu_offload", False) else "device memory",
            wire if reached else f"the local shard, for now: {wire}",
        )

    def _allocate_weights(self: Any) -> tuple[Any, Any]:
        """Placeholders without a row, under stock's names, so that the checkpoint's tensors find their loaders."""
        scales = self.dim // self.block_size
        return (
            torch.empty(0, self.dim, dtype=torch.float8_e4m3fn),
            torch.empty(0, scales, dtype=torch.uint8),
        )

    def _weight_loader(self: Any, param: Any, loaded_weight: Any) -> None:
        """Takes what the checkpoint has for a placeholder, and copies none of it.

        Raises SeamError where it is no tensor of this table, and ShardError where a sampled row is not the shard's.
        """
        values = param is self.weight
        name, dtypes = ("weight", VALUES_DTYPES) if values else ("weight_scale_inv", SCALES_DTYPES)
        where = f"layer {self.remote_layer}: the checkpoint's {name}"
        if loaded_weight.dtype not in dtypes:
            raise SeamError(f"{where} has dtype {loaded_weight.dtype}, where {dtypes[0]} is needed")
        shape = tuple(loaded_weight.shape)
        if len(shape) != 2 or shape[1] != param.shape[1] or shape[0] < self.remote_rows:
            raise SeamError(
                f"{where} has shape {shape}, where at least {self.remote_rows} x {param.shape[1]} is needed"
            )
        if not loaded_weight.is_meta:
            self._compare_sample(name, loaded_weight, 0 if values else self.dim)

    def _compare_sample(self: Any, name: str, tensor: Any, offset: int) -> None:
        """Tables of another checkpoint would be exact, and wrong.  offset: where the tensor's bytes begin in a row."""
        shard, file = self._shard, self.remote_tables.folder / self._shard.file
        width, row_bytes = tensor.shape[1], self.dim + self.dim // self.block_size
        step = max(1, shard.rows // SAMPLED_ROWS)
        with file.open("rb") as stream:
            for row in sorted({*range(shard.row_start, shard.row_end, step), shard.row_end - 1}):
                at = HEADER_BYTES + (row - shard.row_start) * row_bytes + offset
                found = os.pread(stream.fileno(), width, at)
                if found != tensor[row].view(torch.uint8).cpu().numpy().tobytes():
                    detail = f"row {row} is not that of the checkpoint's {name}: another checkpoint's tables"
                    raise ShardError(file, "rows", detail)

    def lookup(self: Any, indices: Any, out: Any, background: bool = False) -> None:
        """As stock's: this rank's rows of [tokens, hash columns] ids, into `out`."""
        if not indices.shape[0] * self.part_n_hash_cols:
            return
        self._view.lookup(self._feed.fetch(indices), out, background)

    def _storage(self) -> tuple[Any, Any]:
        raise SeamError("stock code reads an Engram table that is served remotely; this vLLM was not studied")


def remote_class(
    stock: Any,
    settings: Settings,
    place: Callable[[], Place] = engine_place,
    reader: OpenReader = open_client,
    exchange: Callable[[Any], Exchange | None] = choose_exchange,
) -> type:
    """Stock's class with its rows from a table server.  place, reader, exchange: of the engine, unless given."""
    return type(
        f"Remote{stock.__name__}",
        (RemoteRows, stock),
        {
            "__module__": __name__,
            "__doc__": RemoteRows.__doc__,
            "remote_settings": settings,
            "remote_stock": stock,
            "remote_place": staticmethod(place),
            "remote_reader": staticmethod(reader),
            "remote_exchange": staticmethod(exchange),
        },
    )


def _staging_view(stock: Any, embedding: Any, feed: LayerFeed) -> Any:
    """A stock embedding over staging alone, never constructed: its `lookup` is stock's own code, whatever the version.

    To it the staging is a table of as many rows as there is room for, whose only heads are this rank's.
    """
    view = stock.__new__(stock)
    torch.nn.Module.__init__(view)
    for name, value in {
        "dim": embedding.dim,
        "block_size": embedding.block_size,
        "part_n_hash_cols": embedding.part_n_hash_cols,
        "n_hash_cols": embedding.part_n_hash_cols,
        "head_start": 0,
        "vocab_start_idx": 0,
        "vocab_end_idx": feed.rows_max,
        "peer_rows": 0,
        # Sorting by table order is for a table that the lookup walks; staging lies in the order of the lookup.
        "cpu_offload": False,
        "_num_sms": embedding._num_sms,
        "_storage": feed.planes,
    }.items():
        setattr(view, name, value)
    return view


@contextmanager
def _without_stocks_word(stock: Any) -> Iterator[None]:
    """Stock's constructor would say that a table was offloaded, with its size; there is none."""
    log = logging.getLogger(stock.__module__)

    def other(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("Engram table offloaded")

    log.addFilter(other)
    try:
        yield
    finally:
        log.removeFilter(other)
