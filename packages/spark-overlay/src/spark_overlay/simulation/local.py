"""The engine's own drafter in miniature: the same blocks as the worker's, from a context that it keeps itself.

A context that was not kept in every step lacks rows, and every block drafted from it differs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spark_overlay.simulation.model import Model
from spark_overlay.simulation.requests import SimulatedRequest

if TYPE_CHECKING:
    from spark_overlay.simulation.ranks import Entry

NEVER_WRITTEN = b"never written"


class LocalDrafter:
    """One rank's.  contexts: by slot, the request, its life, and the digests of its rows as they were kept."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.contexts: dict[int, tuple[str, list[bytes]]] = {}

    def adopt(self, request: SimulatedRequest) -> None:
        """A request was given a slot: its context is what the prefix cache has of it."""
        self.contexts[request.slot] = request.name, request.digests[: request.hit]

    def keep(self, entries: Sequence["Entry"]) -> None:
        """Store the step's valid rows; storing them again changes nothing."""
        for entry in entries:
            _, kept = self.contexts[entry.slot]
            kept += [NEVER_WRITTEN] * (entry.start - len(kept))
            kept[entry.start :] = entry.request.digests[entry.start : entry.anchor_position]

    def draft(self, entries: Sequence["Entry"]) -> NDArray[np.int64]:
        """int64 [requests, K]; zeros for requests that still read their prompt."""
        model = self._model
        drafts = np.zeros((len(entries), model.block_length), np.int64)
        for index, entry in enumerate(entries):
            if not entry.n_sampled:
                continue
            _, kept = self.contexts[entry.slot]
            position = entry.anchor_position
            start = max(0, position - model.window) if model.window else 0
            last_row = entry.request.rows[position - 1]
            block = model.block(kept[start:], last_row, entry.anchor, position, model.block_length)
            drafts[index] = block.drafts
        return drafts
