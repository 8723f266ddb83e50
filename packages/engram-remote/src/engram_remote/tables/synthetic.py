"""Rows that a generator makes: tables of any size whose every row can be computed alone.

Rows are the raw words of numpy's Philox (4x64, 10 rounds; its stream is stable across numpy's versions).  A
layer's key is seed + layer * 2**64; row r has the words from counter r * ceil(row_bytes / 32) on, little-
endian, cut to row_bytes.  Then the row's first value becomes (r + 127) mod 256 and its first scale r mod 256:
any 256 rows in a row hold every byte in both, the two NaNs included.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engram_remote.tables.heads import ROWS_MAX, HeadLayout, LayerHeads
from engram_remote.tables.layout import Bytes2D, scales_of
from engram_remote.tables.manifest import SyntheticSource

GENERATOR: Final = "philox-1"
_COUNTER_BYTES = 32
"""What one step of the counter yields: four words of 64 bits."""
_GAP_ROWS = 8
"""Making that many unwanted rows takes as long as one jump of the counter."""


def synthetic_rows(seed: int, layer: int, ids: ArrayLike, columns: int, scales: int) -> Bytes2D:
    """Packed rows, [ids, columns + scales] u8, of a synthetic table.

    ids: whole numbers from 0 on, in any order and with repetition.  Raises ValueError for an id below 0.
    """
    wanted, places = np.unique(np.asarray(ids, np.int64).reshape(-1), return_inverse=True)
    if wanted.size and not 0 <= int(wanted[0]) <= int(wanted[-1]) < ROWS_MAX:
        raise ValueError(f"ids: rows of a table are 0 to {ROWS_MAX - 1}, not {wanted[0]} to {wanted[-1]}")
    found = np.empty((wanted.size, columns + scales), np.uint8)
    stream = _Stream(seed, layer, columns, scales)
    breaks = np.flatnonzero(np.diff(wanted) > _GAP_ROWS) + 1
    for run in np.split(np.arange(wanted.size), breaks) if wanted.size else ():
        first, last = int(wanted[run[0]]), int(wanted[run[-1]])
        found[run] = stream.rows(first, last + 1)[wanted[run] - first]
    rows: Bytes2D = found[places.reshape(-1)]
    return rows


class _Stream:
    """One layer's rows, made in ascending order."""

    def __init__(self, seed: int, layer: int, columns: int, scales: int) -> None:
        self._generator = np.random.Philox(key=seed + (layer << 64))
        self._columns, self._row_bytes = columns, columns + scales
        self._steps = -(-self._row_bytes // _COUNTER_BYTES)
        self._at = 0

    def rows(self, start: int, end: int) -> Bytes2D:
        """[end - start, row_bytes]; start is not below the last end."""
        assert self._at <= start < end
        self._generator.advance((start - self._at) * self._steps)
        words = self._generator.random_raw((end - start) * self._steps * 4)
        self._at = end
        raw = words.astype("<u8", copy=False).view(np.uint8)
        rows: NDArray[np.uint8] = raw.reshape(end - start, -1)[:, : self._row_bytes].copy()
        numbers = np.arange(start, end)
        rows[:, 0] = (numbers + 127) & 0xFF
        rows[:, self._columns] = numbers & 0xFF
        return rows


class SyntheticTables:
    """A source of `build` that reads nothing.  seed: 0 to 2**53 - 1.  Raises ValueError naming what cannot be."""

    def __init__(self, seed: int, heads: HeadLayout, scale_block: int) -> None:
        self.heads, self.scale_block = heads, scale_block
        self._scales = scales_of(heads.columns, scale_block)
        if not 0 <= seed < 1 << 53:
            raise ValueError(f"seed: {seed} is not 0 to {(1 << 53) - 1}")
        self._seed = seed

    def stamps(self) -> list[list[object]]:
        """Nothing that could change meanwhile."""
        return []

    def describe_bytes(self, layer: int) -> int:
        return 0

    def describe(self, layer: int, advance: Callable[[int], None]) -> SyntheticSource:
        """What the manifest says about a layer's rows."""
        return SyntheticSource(kind="synthetic", generator=GENERATOR, seed=self._seed)

    def read(self, layer: int, start: int, end: int) -> Bytes2D:
        """Packed rows start .. end-1."""
        return _Stream(self._seed, layer, self.heads.columns, self._scales).rows(start, end)

    def close(self) -> None:
        """Nothing is open."""


def even_heads(rows: Mapping[int, int], columns: int, parts: int) -> HeadLayout:
    """Layers without a model: rows by layer, each split into `parts` hash columns of (nearly) equal length.

    Raises ValueError where a part would be empty.
    """
    layers = []
    for layer, count in sorted(rows.items()):
        if not parts <= count <= ROWS_MAX:
            raise ValueError(
                f"rows: {count} of layer {layer} cannot be split into {parts} parts, or are too many"
            )
        each, longer = divmod(count, parts)
        sizes = tuple(each + (part < longer) for part in range(parts))
        layers.append(LayerHeads(layer, count, sizes))
    return HeadLayout(columns, tuple(layers))
