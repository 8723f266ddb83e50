"""Synthetic tables, and what their rows must be: the generator's words, never a shard's or a server's."""

from pathlib import Path

import numpy as np
from engram_remote.tables.build import build
from engram_remote.tables.shard_job import BuildOptions
from engram_remote.tables.synthetic import SyntheticTables, even_heads, synthetic_rows
from engram_tables import Bytes2D
from numpy.typing import ArrayLike

RANKS = 2
COLUMNS = 256
SCALES = 8


class SyntheticRows:
    """sizes: rows by layer, split evenly between the ranks.  Stands where a checkpoint does for `Looker`."""

    def __init__(self, seed: int, sizes: dict[int, int]) -> None:
        self.seed, self.sizes = seed, sizes
        # Once, all of them: each row on its own takes the guest a hundred times longer.
        self._rows = {
            layer: synthetic_rows(seed, layer, np.arange(size), COLUMNS, SCALES)
            for layer, size in sizes.items()
        }

    def build(self, folder: Path) -> Path:
        """The folder, with manifest and shards."""
        source = SyntheticTables(self.seed, even_heads(self.sizes, COLUMNS, RANKS), COLUMNS // SCALES)
        build(source, folder, BuildOptions(RANKS, chunk_bytes=1 << 20), lambda _step, _done, _total: None)
        return folder

    def rank_rows(self, layer: int, rank: int, ranks: int) -> tuple[int, int]:
        """Row range of a rank, by hand: the first ranks have a row more where it does not come out even."""
        each, longer = divmod(self.sizes[layer], ranks)
        ends = [each * (part + 1) + min(part + 1, longer) for part in range(ranks)]
        return ([0, *ends][rank], ends[rank])

    def expected_of_rank(self, layer: int, rank: int, ranks: int, ids: ArrayLike) -> tuple[Bytes2D, Bytes2D]:
        """Values and scales; zero bytes for ids outside the rank's rows."""
        start, end = self.rank_rows(layer, rank, ranks)
        index = np.asarray(ids, np.int64)
        inside = (index >= start) & (index < end)
        packed = self._rows[layer][np.where(inside, index, start)]
        packed[~inside] = 0
        return packed[:, :COLUMNS], packed[:, COLUMNS:]
