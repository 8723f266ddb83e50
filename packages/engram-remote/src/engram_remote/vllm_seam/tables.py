"""The tables of one rank of one model: the manifest compared with the model, and one reader for all layers.

Whatever does not fit is refused with the manifest's file and the field, before a row is read.
"""

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ofl.files import open_plain

from engram_remote.settings import Settings
from engram_remote.tables.errors import ManifestError, ShardError
from engram_remote.tables.layout import HEADER_BYTES, unpack_header
from engram_remote.tables.manifest import FILE_NAME, CheckpointSource, Manifest, Shard, read_manifest
from engram_remote.vllm_seam.errors import SeamError
from engram_remote.vllm_seam.feed import Heads, LayerFeed
from engram_remote.vllm_seam.memory import SharedMemory
from engram_remote.vllm_seam.place import Place
from engram_remote.vllm_seam.reader import OpenReader, Reader
from engram_remote.vllm_seam.report import Statistics
from engram_remote.vllm_seam.stream import Exchange, choose_exchange

_LOCK = threading.Lock()
_OPEN: "weakref.WeakSet[RemoteTables]" = weakref.WeakSet()


class RemoteTables:
    """One rank's tables, opened.  Lives as long as an embedding that reads from it, or until `close`."""

    def __init__(
        self,
        settings: Settings,
        place: Place,
        rows_max: int,
        open_reader: OpenReader,
        exchange: Callable[[Any], Exchange | None] = choose_exchange,
    ) -> None:
        self.settings, self.place = settings, place
        self.folder = settings.tables
        self.manifest = _manifest(self.folder)
        self._check_ranks()
        for entry in self.manifest.layers:
            self._check_shard(self.manifest.shard(entry.layer, place.rank))
        self.taken: set[int] = set()
        self._exchange = exchange(place.device)
        self.reader: Reader = open_reader(settings, place, self.folder, self.manifest, rows_max)
        self._statistics = Statistics(self.reader, settings.log_s, f"rank {place.rank}")
        # What the reader writes to must outlive it, also where all embeddings go at once.
        self._memory: list[SharedMemory] = []
        self._end = weakref.finalize(self, _end, self._statistics, self.reader, self._memory)

    def feed(self, embedding: Any, head_sizes: tuple[int, ...]) -> LayerFeed:
        """The feed of a stock embedding just constructed.  Raises SeamError, ManifestError, ShardError."""
        layer = self.layer_of(head_sizes)
        self.check_layer(embedding, head_sizes, layer)
        self.taken.add(layer)
        heads = Heads(
            first=embedding.head_start,
            local=embedding.part_n_hash_cols,
            total=embedding.n_hash_cols,
            row_start=embedding.vocab_start_idx,
            row_end=embedding.vocab_end_idx,
        )
        return LayerFeed(
            self.reader,
            self._exchange,
            heads,
            layer=[entry.layer for entry in self.manifest.layers].index(layer),
            columns=self.manifest.columns,
            scales=self.manifest.scales,
            rows_max=self.place.tokens_max * heads.local,
            device=self.place.device,
            keep=self._memory.append,
        )

    def layer_of(self, head_sizes: tuple[int, ...]) -> int:
        """The model's layer with these head sizes: primes, of which no two layers share one.  Raises SeamError."""
        layer = self.place.layers.get(head_sizes)
        if layer is None:
            raise SeamError(f"no Engram layer of this model has heads of {head_sizes} rows")
        return layer

    def check_layer(self, embedding: Any, head_sizes: tuple[int, ...], layer: int) -> None:
        """Raises ManifestError naming the field that does not fit the model."""
        manifest, file = self.manifest, self.folder / FILE_NAME
        for name, found, needed in (
            ("columns", manifest.columns, embedding.dim),
            ("scale_block", manifest.scale_block, embedding.block_size),
        ):
            if found != needed:
                raise ManifestError(file, name, f"{found}, where the model's rows have {needed}")
        layers = [entry.layer for entry in manifest.layers]
        if layer not in layers:
            raise ManifestError(file, "layers", f"{layers} lack the model's layer {layer}")
        index = layers.index(layer)
        entry, rows = manifest.layers[index], sum(head_sizes)
        if entry.rows != rows:
            detail = f"{entry.rows}, where layer {layer} of the model has heads of {rows} rows"
            raise ManifestError(file, f"layers[{index}].rows", detail)
        source = entry.source
        if isinstance(source, CheckpointSource) and source.rows != embedding.num_embeddings:
            detail = f"{source.rows}, where the model's tensor has {embedding.num_embeddings}"
            raise ManifestError(file, f"layers[{index}].source.rows", detail)
        shard = manifest.shard(layer, self.place.rank)
        place = f"shards[{manifest.shards.index(shard)}]"
        for name, found, needed in (
            ("row_start", shard.row_start, embedding.vocab_start_idx),
            ("row_end", shard.row_end, embedding.vocab_end_idx),
        ):
            if found != needed:
                detail = f"{found}, where rank {self.place.rank} of the model has {needed}"
                raise ManifestError(file, f"{place}.{name}", detail)

    def close(self) -> None:
        """End the reader; lookups are refused from then on.  Again: nothing."""
        self._end()

    def _check_ranks(self) -> None:
        if self.manifest.ranks != self.place.ranks:
            detail = f"{self.manifest.ranks}, where the engine has {self.place.ranks} head shards"
            raise ManifestError(self.folder / FILE_NAME, "ranks", detail)

    def _check_shard(self, shard: Shard) -> None:
        """That the local shard is there, whole by its size, and by its header the manifest's."""
        file = self.folder / shard.file
        try:
            with open_plain(file) as stream:
                head, size = stream.read(HEADER_BYTES), os.fstat(stream.fileno()).st_size
        except OSError as error:
            raise ShardError(file, "file", f"cannot be read: {error.strerror}") from error
        if size != shard.bytes:
            raise ShardError(file, "bytes", f"{size}, where the manifest says {shard.bytes}")
        found, stated = unpack_header(file, head), self.manifest.header(shard)
        if found != stated:
            raise ShardError(file, "header", f"{found}, where the manifest makes it {stated}")


def tables_for(
    settings: Settings, place: Place, layer: int, make: Callable[[], RemoteTables]
) -> RemoteTables:
    """The tables of the model under construction: those that an earlier layer of it opened, or new ones.

    A layer that is taken already belongs to another model of this process, which keeps its own.
    """
    with _LOCK:
        for tables in _OPEN:
            same = tables.settings == settings and tables.place == place
            if same and layer not in tables.taken and tables._end.alive:
                return tables
        made = make()
        _OPEN.add(made)
        return made


def close_all() -> None:
    """Close the tables of all models of this process."""
    for tables in list(_OPEN):
        tables.close()


def _manifest(folder: Path) -> Manifest:
    try:
        return read_manifest(folder)
    except OSError as error:
        raise ManifestError(folder / FILE_NAME, "file", f"cannot be read: {error.strerror}") from error


def _end(statistics: Statistics, reader: Reader, memory: list[SharedMemory]) -> None:
    statistics.stop()
    reader.close()
    memory.clear()
