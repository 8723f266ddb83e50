"""Whether shards are what header and manifest say, and a record that spares the next hour of digesting.

What is compared always: the size of the file, byte for byte, and its header.  What is digested once: all of it,
in chunks, by several threads (file reads and hashlib run without the interpreter lock).  A digest that was
compared is recorded with the file's stat in `.verified.json`; while both match, the file is not read again
unless asked.  The server, which reads the file anyway, uses the same parts: `open_shard`, `check_chunk`,
`Verified`.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ofl.contract.records import Buffer
from ofl.files import NotRegularFileError, plain_descriptor

from engram_remote.tables.errors import ShardError
from engram_remote.tables.files import show_later_stores
from engram_remote.tables.layout import HEADER_BYTES, ShardHeader, unpack_header
from engram_remote.tables.manifest import Manifest, Shard
from engram_remote.tables.record import FileStat, Verified

Advance = Callable[[int], None]
"""Told how many bytes more are done."""

READ_BYTES = 1 << 20


@dataclass(frozen=True)
class OpenShard:
    """A shard whose size and header agree with the manifest.  stat: of when it was opened."""

    path: Path
    descriptor: int
    shard: Shard
    stat: FileStat

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill target (bytes) from offset of the file on.  Raises ShardError where the file is shorter now."""
        done = 0
        while done < len(target):
            got = os.preadv(self.descriptor, [target[done:]], offset + done)
            if not got:
                raise ShardError(self.path, "bytes", f"ends at {offset + done} while it is being read")
            done += got

    def unchanged(self) -> None:
        """Raises ShardError where the file was written to, cut, or replaced since it was opened."""
        now = FileStat.of(self.descriptor)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            raise ShardError(self.path, "file", "was removed while it was being read") from None
        if now != self.stat or (there.st_ino, there.st_dev) != (now.inode, now.dev):
            raise ShardError(self.path, "file", "changed while it was being read")


@dataclass(frozen=True)
class ShardReport:
    """What `verify_shard` found.  digested: whether the file was read, and not spared by the record."""

    shard: Shard
    digested: bool
    seconds: float


def default_threads() -> int:
    """One for each core that this process may use."""
    return len(os.sched_getaffinity(0))


def chunk_span(shard: Shard, index: int) -> tuple[int, int]:
    """Where a chunk begins in the file, and past its end, in bytes."""
    start = index * shard.chunk_bytes
    return start, min(start + shard.chunk_bytes, shard.bytes)


def check_chunk(path: Path, shard: Shard, index: int, data: Buffer) -> None:
    """Compare a chunk's bytes with the manifest.  Raises ShardError with both digests."""
    found = hashlib.sha256(data).hexdigest()
    if found != shard.chunks[index]:
        raise ShardError(
            path, f"chunks[{index}]", f"has {found} where the manifest says {shard.chunks[index]}"
        )


@contextmanager
def open_shard(folder: Path, manifest: Manifest, shard: Shard) -> Iterator[OpenShard]:
    """Open a shard and compare size and header with the manifest.  Raises ShardError naming file and field, OSError."""
    path = folder / shard.file
    try:
        descriptor = plain_descriptor(path)
    except FileNotFoundError:
        raise ShardError(path, "file", "is named by the manifest and is not there") from None
    except NotRegularFileError:
        raise ShardError(path, "file", "is no regular file") from None
    try:
        show_later_stores(descriptor)
        stat = FileStat.of(descriptor)
        opened = OpenShard(path, descriptor, shard, stat)
        if stat.size != shard.bytes:
            what = "too few" if stat.size < shard.bytes else "too many"
            detail = f"has {stat.size} bytes, {abs(stat.size - shard.bytes)} {what} for the manifest's {shard.bytes}"
            raise ShardError(path, "bytes", detail)
        head = bytearray(HEADER_BYTES)
        opened.read_into(0, memoryview(head))
        check_header(path, unpack_header(path, head), manifest.header(shard))
        yield opened
    finally:
        os.close(descriptor)


def check_header(path: Path, found: ShardHeader, expected: ShardHeader) -> None:
    """Raises ShardError naming the first field in which a shard's header differs from the manifest."""
    for name, value in vars(expected).items():
        has = getattr(found, name)
        if has != value:
            shown = [item.hex() if isinstance(item, bytes) else item for item in (has, value)]
            raise ShardError(path, name, f"the header says {shown[0]}, the manifest {shown[1]}")


def verify_shard(
    folder: Path,
    manifest: Manifest,
    shard: Shard,
    *,
    verified: Verified,
    full: bool = False,
    threads: int = 1,
    advance: Advance = lambda _bytes: None,
) -> ShardReport:
    """Compare one shard with the manifest, all of it unless `verified` says that this was done.

    full: digest anyway, and the whole file in one besides its chunks.  Raises ShardError naming file and field,
    OSError.
    """
    began = time.monotonic()
    with open_shard(folder, manifest, shard) as opened:
        if not full and verified.holds(shard, opened.stat):
            advance(shard.bytes)
            return ShardReport(shard, False, time.monotonic() - began)
        started_ns = verified.now_ns()
        _digest_chunks(opened, threads, advance)
        if full:
            _digest_whole(opened)
        opened.unchanged()
        verified.add(shard, opened.stat, started_ns)
        return ShardReport(shard, True, time.monotonic() - began)


def chosen_shards(manifest: Manifest, rank: int | None) -> Sequence[Shard]:
    """The shards of a rank, or all.  Raises ValueError where there is no such rank."""
    if rank is not None and not 0 <= rank < manifest.ranks:
        raise ValueError(f"rank: {rank} is not one of {manifest.ranks}")
    return [shard for shard in manifest.shards if rank in (None, shard.rank)]


def _digest_chunks(opened: OpenShard, threads: int, advance: Advance) -> None:
    """Raises ShardError for the first chunk, in file order, that is not the manifest's."""

    def one(index: int) -> None:
        start, end = chunk_span(opened.shard, index)
        data = bytearray(end - start)
        opened.read_into(start, memoryview(data))
        check_chunk(opened.path, opened.shard, index, data)
        advance(end - start)

    with ThreadPoolExecutor(threads) as pool:
        done = [pool.submit(one, index) for index in range(len(opened.shard.chunks))]
        try:
            for future in done:
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _digest_whole(opened: OpenShard) -> None:
    digest, buffer = hashlib.sha256(), memoryview(bytearray(READ_BYTES))
    for at in range(0, opened.shard.bytes, READ_BYTES):
        piece = buffer[: opened.shard.bytes - at]
        opened.read_into(at, piece)
        digest.update(piece)
    if digest.hexdigest() != opened.shard.sha256:
        detail = f"has {digest.hexdigest()} where the manifest says {opened.shard.sha256}"
        raise ShardError(opened.path, "sha256", detail)
