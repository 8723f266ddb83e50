"""The ring of context rows that survives the worker: per slot, the newest rows by absolute position.

Owns bytes only; which positions are valid is the slot's business (`slots`).  Must never allocate after
construction except for a read that wraps around.
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.uint8]
"""[rows, row_bytes], C-contiguous."""


def ring_rows_needed(window: int, block_length: int, pipeline_depth: int) -> int:
    """Rows for a windowed drafter: the window, and what rounds under way may still take back."""
    return window + (block_length + 1) * pipeline_depth


class Ring:
    """uint8 [slots, ring_rows, row_bytes]; position p of a slot lies at p modulo ring_rows.

    Pages are touched only as slots fill, so memory follows use.
    """

    def __init__(self, slots: int, ring_rows: int, row_bytes: int) -> None:
        self.ring_rows = ring_rows
        self._data = np.empty((slots, ring_rows, row_bytes), np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for all slots."""
        return int(self._data.nbytes)

    def store(self, slot: int, first_position: int, rows: Rows) -> None:
        """Keep rows from first_position on; of more than ring_rows only the last ones."""
        excess = len(rows) - self.ring_rows
        if excess > 0:
            rows = rows[excess:]
            first_position += excess
        at = first_position % self.ring_rows
        head = min(len(rows), self.ring_rows - at)
        lane = self._data[slot]
        lane[at : at + head] = rows[:head]
        lane[: len(rows) - head] = rows[head:]

    def read(self, slot: int, first_position: int, count: int) -> Rows:
        """Rows from first_position on, count of them, contiguous: a view, or a copy where they wrap."""
        at = first_position % self.ring_rows
        lane = self._data[slot]
        if at + count <= self.ring_rows:
            view: Rows = lane[at : at + count]
            return view
        return np.concatenate((lane[at:], lane[: count - (self.ring_rows - at)]))
