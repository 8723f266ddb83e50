"""What rows must be: read from the shards by numpy alone, and for synthetic tables made again by their generator.

Knows nothing of the client, its readers or a server.
"""

import os
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engram_remote.tables.layout import HEADER_BYTES, Bytes2D
from engram_remote.tables.manifest import Manifest, SyntheticSource
from engram_remote.tables.synthetic import synthetic_rows
from engram_remote.tables.verify import OpenShard, open_shard

Ids = NDArray[np.int32]
GAP_ROWS = 8
"""Reading that many unwanted rows takes no longer than asking once more."""


class ExpectedRows:
    """One rank's rows of one layer.  The file is read and never mapped: a cut one is no SIGBUS.

    Raises ShardError naming file and field where it is not the manifest's, or is cut meanwhile; OSError.
    """

    def __init__(self, folder: Path, manifest: Manifest, layer: int, rank: int) -> None:
        shard = manifest.shard(layer, rank)
        self.layer, self.row_start, self.row_end = layer, shard.row_start, shard.row_end
        self.columns, self.scales = manifest.columns, manifest.scales
        with open_shard(folder, manifest, shard) as opened:
            descriptor = os.dup(opened.descriptor)
        weakref.finalize(self, os.close, descriptor)
        self._file = OpenShard(opened.path, descriptor, shard, opened.stat)
        source = manifest.layer(layer).source
        self._seed = source.seed if isinstance(source, SyntheticSource) else None

    def inside(self, ids: Ids) -> NDArray[np.bool_]:
        """Which ids have a row in this shard."""
        wide = ids.astype(np.int64)
        found: NDArray[np.bool_] = (wide >= self.row_start) & (wide < self.row_end)
        return found

    def rows(self, ids: Ids) -> Bytes2D:
        """Packed rows, [ids, row_bytes] u8; zero bytes for ids without one."""
        packed = np.zeros((len(ids), self.columns + self.scales), np.uint8)
        inside = self.inside(ids)
        wanted, places = np.unique(ids[inside].astype(np.int64) - self.row_start, return_inverse=True)
        found = np.empty((len(wanted), packed.shape[1]), np.uint8)
        breaks = np.flatnonzero(np.diff(wanted) > GAP_ROWS) + 1
        for run in np.split(np.arange(len(wanted)), breaks) if len(wanted) else ():
            first = int(wanted[run[0]])
            found[run] = self._read(first, int(wanted[run[-1]]) + 1)[wanted[run] - first]
        packed[inside] = found[places.reshape(-1)]
        return packed

    def _read(self, start: int, end: int) -> Bytes2D:
        """Packed rows by their numbers in the shard."""
        rows = np.empty((end - start, self.columns + self.scales), np.uint8)
        self._file.read_into(HEADER_BYTES + start * rows.shape[1], rows.reshape(-1).data)
        return rows

    def generated(self, ids: Ids) -> Bytes2D | None:
        """As `rows`, from the generator; None where the table has none."""
        if self._seed is None:
            return None
        packed = np.zeros((len(ids), self.columns + self.scales), np.uint8)
        inside = self.inside(ids)
        packed[inside] = synthetic_rows(self._seed, self.layer, ids[inside], self.columns, self.scales)
        return packed


def wrong_rows(expected: Bytes2D, values: Bytes2D, scales: Bytes2D) -> int:
    """How many rows of the planes differ from the packed ones in any byte.  Raises ValueError on other shapes."""
    columns = values.shape[1]
    if expected.shape != (len(values), columns + scales.shape[1]) or len(values) != len(scales):
        raise ValueError(f"planes of {values.shape} and {scales.shape} are not rows of {expected.shape}")
    wrong = (expected[:, :columns] != values).any(axis=1) | (expected[:, columns:] != scales).any(axis=1)
    return int(wrong.sum())
