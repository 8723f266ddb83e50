"""What this host does in a second: memory, random rows, digests, reads.  Each the best of a few short tries."""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

_TRIES = 5
_MEMORY_BYTES = 128 << 20
"""Well beyond the caches of most hosts."""
_HASH_BYTES = 32 << 20
_READ_BYTES = 512 << 20
_GATHER_ROWS = 49_152
_PIECE_BYTES = 16 << 20


def memory_gb_per_s() -> float:
    """Bytes that one thread copies, 10**9 a second."""
    source, target = np.ones(_MEMORY_BYTES, np.uint8), np.ones(_MEMORY_BYTES, np.uint8)
    return _MEMORY_BYTES / _best_s(lambda: np.copyto(target, source)) / 1e9


def row_ns(row_bytes: int, memory_rate: float) -> float:
    """What a row at random costs one thread beside copying its bytes at memory_rate (10**9 a second); nanoseconds."""
    table = np.ones((_MEMORY_BYTES // row_bytes, row_bytes), np.uint8)
    ids = np.random.default_rng(0).integers(0, len(table), _GATHER_ROWS)
    target = np.ones((_GATHER_ROWS, row_bytes), np.uint8)
    whole_ns = _best_s(lambda: np.take(table, ids, axis=0, out=target, mode="clip")) * 1e9 / _GATHER_ROWS
    return max(whole_ns - row_bytes / memory_rate, 0.0)


def hash_gb_per_s() -> float:
    """Bytes that one thread digests with sha256, 10**9 a second."""
    data = bytes(_HASH_BYTES)
    return _HASH_BYTES / _best_s(lambda: hashlib.sha256(data)) / 1e9


def read_gb_per_s(file: Path) -> float:
    """Bytes of a file that are read in a second, 10**9, up to half a GiB of it, after asking the kernel to forget them.

    Whether it does is up to it: figures far above the disk's are the page cache's.  Raises OSError.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = min(os.fstat(descriptor).st_size, _READ_BYTES)
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
        buffer, done, began = memoryview(bytearray(min(size, _PIECE_BYTES))), 0, time.perf_counter()
        while done < size and (got := os.preadv(descriptor, [buffer[: size - done]], done)):
            done += got
        return done / max(time.perf_counter() - began, 1e-9) / 1e9
    finally:
        os.close(descriptor)


def _best_s(work: Callable[[], object]) -> float:
    took = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return max(min(took), 1e-9)
