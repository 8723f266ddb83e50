"""The record of digests that were compared: `.verified.json` beside the manifest.

It spares work and decides nothing else: what is not recorded, not readable or not equal is digested again.  A
file that was written to within the tick of the clock in which it was digested is not recorded, since a later
write in the same tick would leave its times as they are; nor is one whose file system lives in memory, where a
store through a mapping leaves them so at any time.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from ofl.files import publish, read_plain

from engram_remote.tables.files import TEXT_BYTES_MAX
from engram_remote.tables.manifest import Shard

FILE_NAME = ".verified.json"
_VERSION = 1
_CLOCK_REALTIME_COARSE = 5
"""Linux's clock of file times, which Python has no name for."""
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
"""As the kernel names them."""
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class FileStat:
    """What changes when a file is written to or replaced.  size in bytes; times in nanoseconds."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    dev: int

    @classmethod
    def of(cls, file: int | Path) -> Self:
        """Of a descriptor or path.  Raises OSError."""
        status = os.stat(file)
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)


class Verified:
    """The record of one folder, as it was when this was made; `add` writes through, if the folder can be written to."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME

    def holds(self, shard: Shard, stat: FileStat) -> bool:
        """Whether this digest was compared while the file had this stat."""
        return self._read().get(shard.file) == _entry(shard, stat)

    def add(self, shard: Shard, stat: FileStat, started_ns: int) -> bool:
        """Record that the shard's bytes were compared.

        stat: before the first byte was read, and still so after the last.  started_ns: `now_ns()` before the first.
        Returns whether it is recorded: not so on a file system that is read-only or in memory, nor for a file that was
        written just before.
        """
        if max(stat.mtime_ns, stat.ctime_ns) >= started_ns or in_memory(stat.dev):
            return False
        with suppress(OSError):
            shards = {**self._read(), shard.file: _entry(shard, stat)}
            text = json.dumps({"version": _VERSION, "shards": shards}, indent=1, sort_keys=True)
            publish(self._path, text.encode() + b"\n", synced=True)
            return True
        return False

    @staticmethod
    def now_ns() -> int:
        """The clock that file times are taken from, in nanoseconds."""
        return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)

    def _read(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, RecursionError):
            found = json.loads(read_plain(self._path, TEXT_BYTES_MAX))
            if isinstance(found, dict) and found.get("version") == _VERSION:
                shards = found.get("shards")
                return shards if isinstance(shards, dict) else {}
        return {}


def _entry(shard: Shard, stat: FileStat) -> dict[str, Any]:
    """With all that was compared: the chunks' digests, which a manifest may state beside any whole one."""
    chunks = hashlib.sha256(" ".join([str(shard.chunk_bytes), *shard.chunks]).encode()).hexdigest()
    return {"sha256": shard.sha256, "chunks_sha256": chunks, **asdict(stat)}


def in_memory(dev: int) -> bool:
    """Whether the files of that device lie in memory alone, as the list of mounts says."""
    number = f"{os.major(dev)}:{os.minor(dev)}"
    with suppress(OSError):
        for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            place, _, kind = line.partition(" - ")
            if place.split()[2:3] == [number]:
                return kind.split(" ", 1)[0] in MEMORY_FILE_SYSTEMS
    return False
