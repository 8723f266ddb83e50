"""Readers for the seam without a client: rows from the local shards, and a thread that serves hand-over blocks."""

import ctypes
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from engram_remote.settings import Settings
from engram_remote.tables.layout import HEADER_BYTES
from engram_remote.tables.manifest import Manifest
from engram_remote.vllm_seam.place import Place
from ofl.contract.engram_v1.layout import HEADER, LOOKUP_REPLY, plane_bytes

POISON = 0xA5
HEAD = HEADER.size + LOOKUP_REPLY.size


def memory(address: int, size: int) -> Any:
    """The bytes at an address, as a numpy array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


@dataclass
class _Staging:
    address: int
    size: int


class ShardReader:
    """As the seam's Reader.  Poisons the staging before every lookup."""

    def __init__(
        self, settings: Settings, place: Place, folder: Path, manifest: Manifest, rows_max: int
    ) -> None:
        self.settings, self.place, self.manifest, self.rows_max = settings, place, manifest, rows_max
        self.closed = False
        self.lookups = 0
        self._stagings: list[_Staging] = []
        self._threads: list[threading.Thread] = []
        self._failed: list[BaseException] = []
        self._shards = []
        for entry in manifest.layers:
            shard = manifest.shard(entry.layer, place.rank)
            data = np.fromfile(folder / shard.file, dtype=np.uint8)[HEADER_BYTES:]
            self._shards.append((shard.row_start, data.reshape(shard.rows, manifest.row_bytes)))

    def add_staging(self, address: int, size: int) -> int:
        self._stagings.append(_Staging(address, size))
        return len(self._stagings) - 1

    def read(self, ids: int, count: int, layer: int, staging: int) -> None:
        self.lookups += 1
        start, rows = self._shards[layer]
        wanted = memory(ids, count * 4).view("<i4").astype(np.int64) - start
        found = np.zeros((count, self.manifest.row_bytes), np.uint8)
        held = (wanted >= 0) & (wanted < len(rows))
        found[held] = rows[wanted[held]]
        place = self._stagings[staging]
        whole = memory(place.address, place.size)
        whole[:] = POISON
        columns = self.manifest.columns
        second = HEAD + plane_bytes(count, columns)
        whole[HEAD : HEAD + count * columns] = found[:, :columns].reshape(-1)
        whole[second : second + count * self.manifest.scales] = found[:, columns:].reshape(-1)

    def attach(self, block: int, rows_max: int, layer: int, staging: int) -> None:
        thread = threading.Thread(target=self._serve, args=(block, rows_max, layer, staging), daemon=True)
        self._threads.append(thread)
        thread.start()

    def connected(self) -> tuple[bool, str]:
        return False, "no server, rows come from the shards"

    def counters(self) -> dict[str, int]:
        return {"lookups": self.lookups}

    def statistics_line(self) -> str:
        return f"{self.lookups} lookups"

    def close(self) -> None:
        self.closed = True
        for thread in self._threads:
            thread.join()
        assert not self._failed, self._failed

    def _serve(self, block: int, rows_max: int, layer: int, staging: int) -> None:
        words = memory(block, 4 * (32 + rows_max)).view("<u4")
        try:
            while not self.closed:
                if words[0] != 1:
                    time.sleep(0)
                    continue
                words[0] = 0
                assert words[1] <= rows_max
                self.read(block + 128, int(words[1]), layer, staging)
                words[16] = 1
        except BaseException as error:
            self._failed.append(error)
            words[16] = 1
            raise


class HostExchange:
    """What a stream does, done by the calling thread: where there is no GPU."""

    name = "the calling thread"

    def __init__(self, _device: Any = None) -> None:
        self.exchanges = 0

    def __call__(self, block: Any) -> None:
        words = memory(block.address, 128).view("<u4")
        words[0] = 1
        while words[16] != 1:
            time.sleep(0)
        words[16] = 0
        self.exchanges += 1
