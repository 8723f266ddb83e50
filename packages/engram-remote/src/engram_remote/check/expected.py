"""What rows must be: read from the shards by numpy alone, and for synthetic tables made again by their generator.

Knows nothing of the client, its readers or a server.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engram_remote.tables.layout import HEADER_BYTES, Bytes2D
from engram_remote.tables.manifest import Manifest, SyntheticSource
from engram_remote.tables.synthetic import synthetic_rows

Ids = NDArray[np.int32]


class ExpectedRows:
    """One rank's rows of one layer.  Raises OSError where the shard cannot be read."""

    def __init__(self, folder: Path, manifest: Manifest, layer: int, rank: int) -> None:
        shard = manifest.shard(layer, rank)
        self.layer, self.row_start, self.row_end = layer, shard.row_start, shard.row_end
        self.columns, self.scales = manifest.columns, manifest.scales
        shape = (shard.rows, manifest.row_bytes)
        self._rows = np.memmap(folder / shard.file, np.uint8, "r", HEADER_BYTES, shape)
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
        packed[inside] = self._rows[ids[inside].astype(np.int64) - self.row_start]
        return packed

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
