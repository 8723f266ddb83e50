"""One layer's rows: its staging, its hand-over block, and the way from hash ids to rows in staging.

Everything that a lookup touches is made here, once: a captured CUDA graph keeps these addresses.  A lookup makes no
tensor on the device and waits for nothing on the host, except on a CPU, where there is no stream to wait in its
place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from ofl.contract.engram_v1.layout import (
    DETAIL_BYTES_MAX,
    FIELD_BYTES_MAX,
    HEADER,
    REFUSAL,
    REPLY_HEAD_BYTES,
    plane_bytes,
)

from engram_remote.vllm_seam.errors import SeamError
from engram_remote.vllm_seam.kernels import SPLIT_BLOCK, split_ids
from engram_remote.vllm_seam.memory import SharedMemory
from engram_remote.vllm_seam.reader import Reader
from engram_remote.vllm_seam.stream import Exchange

REFUSAL_BYTES_MAX = HEADER.size + REFUSAL.size + FIELD_BYTES_MAX + DETAIL_BYTES_MAX
"""A refusal lands in staging too."""
ROWS_WORD, IDS_WORD = 1, 32
"""Positions in a hand-over block, in words of four bytes, as engram.h lays it out (engram_handover)."""


@dataclass(frozen=True)
class Heads:
    """A rank's part of a layer: hash columns first .. first + local, of which only those below total exist; their
    rows.
    """

    first: int
    local: int
    total: int
    row_start: int
    row_end: int


class LayerFeed:
    """Feeds one embedding.

    layer: position in the reader's layers.  exchange: None where there is no stream.  keep: takes the memory that must
    outlive the reader.
    """

    def __init__(
        self,
        reader: Reader,
        exchange: Exchange | None,
        heads: Heads,
        *,
        layer: int,
        columns: int,
        scales: int,
        rows_max: int,
        device: Any,
        keep: Callable[[SharedMemory], object],
    ) -> None:
        self._reader, self._exchange, self._heads, self._layer = reader, exchange, heads, layer
        self._columns, self._scales, self.rows_max = columns, scales, rows_max
        pinned = device.type == "cuda"
        planes = plane_bytes(rows_max, columns) + plane_bytes(rows_max, scales)
        self.staging = SharedMemory(max(REPLY_HEAD_BYTES + planes, REFUSAL_BYTES_MAX), pinned=pinned)
        self.block = SharedMemory(4 * (IDS_WORD + rows_max), pinned=pinned)
        keep(self.staging)
        keep(self.block)
        words = self.block.words()
        self._rows_word, self._wanted = words[ROWS_WORD:], words[IDS_WORD:]
        self._staged = torch.empty(rows_max, dtype=torch.int32, device=device)
        self._rows = 0
        self._staging_number = reader.add_staging(self.staging.address, self.staging.size)
        if exchange is not None:
            reader.attach(self.block.address, rows_max, layer, self._staging_number)

    @property
    def host_bytes(self) -> int:
        """Pinned memory of this layer."""
        return self.staging.size + self.block.size

    def fetch(self, indices: Any) -> Any:
        """Bring this rank's rows of [tokens, hash columns] ids into staging, on the current stream.

        Returns i32 [tokens, local heads] on the device of the ids: for each row its number in staging, or -1 where this
        rank holds no such row.  Raises SeamError on more rows than there is room for, and where there is no stream
        whatever the reader raises.
        """
        heads, tokens = self._heads, indices.shape[0]
        rows = tokens * heads.local
        if rows > self.rows_max:
            raise SeamError(f"{rows} rows are asked for at once, where staging holds {self.rows_max}")
        self._rows = rows
        split_ids[(-(-rows // SPLIT_BLOCK),)](
            indices,
            self._wanted,
            self._staged,
            self._rows_word,
            heads.row_start,
            heads.row_end,
            rows,
            indices.stride(0),
            indices.stride(1),
            HEAD_START=heads.first,
            LOCAL_HEADS=heads.local,
            TOTAL_HEADS=heads.total,
            BLOCK=SPLIT_BLOCK,
        )
        if self._exchange is not None:
            self._exchange(self.block)
        else:
            self._reader.read(self._wanted.data_ptr(), rows, self._layer, self._staging_number)
        return self._staged[:rows].view(tokens, heads.local)

    def planes(self) -> tuple[Any, Any]:
        """Where the rows of the last `fetch` lie: values [rows, columns] float8 E4M3, scales [rows, scales] u8."""
        rows, staged = self._rows, self.staging.tensor
        first = REPLY_HEAD_BYTES
        second = first + plane_bytes(rows, self._columns)
        values = staged[first : first + rows * self._columns].view(torch.float8_e4m3fn)
        scales = staged[second : second + rows * self._scales]
        return values.view(rows, self._columns), scales.view(rows, self._scales)
