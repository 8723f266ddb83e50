"""Shards into memory, by all threads at once, each chunk digested from the very bytes that will be served.

Nothing is read twice, and nothing is handed out before all of it is what the manifest says.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from engram_remote.server.memory import TableMemory
from engram_remote.tables.layout import HEADER_BYTES
from engram_remote.tables.manifest import Manifest, Shard
from engram_remote.tables.record import Verified
from engram_remote.tables.verify import OpenShard, check_chunk, chunk_span, open_shard

Progress = Callable[[int], None]
"""Told how many bytes more are in memory and, where they were to be, digested."""
STOP_LOOK_S = 0.1
"""How often a load looks whether it is to stop."""


class LoadStopped(Exception):
    """The load was asked to stop before it was done."""


@dataclass(frozen=True)
class LoadedTable:
    """One shard in memory.  rows: address of its first row.  digested: now, and not spared by the record."""

    shard: Shard
    memory: TableMemory
    digested: bool

    @property
    def rows(self) -> int:
        return self.memory.address + HEADER_BYTES


@contextmanager
def loaded_tables(
    folder: Path,
    manifest: Manifest,
    shards: Sequence[Shard],
    *,
    threads: int,
    huge: bool = False,
    full: bool = False,
    advance: Progress = lambda _bytes: None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[list[LoadedTable]]:
    """The shards, verified and sealed, for as long as the context lasts.

    full: digest also what `.verified.json` says was digested and has not changed.  stop: asked now and then;
    LoadStopped is raised once it says True.  Raises ShardError naming file and field, EngramError, OSError.
    """
    with ExitStack() as stack:
        memories = [stack.enter_context(TableMemory(shard.bytes, huge=huge)) for shard in shards]
        with ExitStack() as files:
            opened = [files.enter_context(open_shard(folder, manifest, shard)) for shard in shards]
            digested = _fill(folder, opened, memories, threads, full, advance, stop)
        for memory in memories:
            memory.seal()
        yield [LoadedTable(*one) for one in zip(shards, memories, digested, strict=True)]


def _fill(
    folder: Path,
    opened: Sequence[OpenShard],
    memories: Sequence[TableMemory],
    threads: int,
    full: bool,
    advance: Progress,
    stop: Callable[[], bool],
) -> list[bool]:
    """Read all chunks of all shards; whether each shard was digested."""
    verified, started_ns = Verified(folder), Verified.now_ns()
    digest = [full or not verified.holds(one.shard, one.stat) for one in opened]
    with ThreadPoolExecutor(threads, "engram-load") as pool:
        futures = [
            pool.submit(_read_chunk, one, memory, index, check, advance)
            for one, memory, check in zip(opened, memories, digest, strict=True)
            for index in range(len(one.shard.chunks))
        ]
        try:
            _finish(futures, stop)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for one, check in zip(opened, digest, strict=True):
        one.unchanged()
        if check:
            verified.add(one.shard, one.stat, started_ns)
    return digest


def _read_chunk(opened: OpenShard, memory: TableMemory, index: int, check: bool, advance: Progress) -> None:
    start, end = chunk_span(opened.shard, index)
    with memory.view() as view, view[start:end] as target:
        opened.read_into(start, target)
        if check:
            check_chunk(opened.path, opened.shard, index, target)
    advance(end - start)


def _finish(futures: Sequence[Future[None]], stop: Callable[[], bool]) -> None:
    """Wait for all; raises the first error in the order of files and chunks among those that are known."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=STOP_LOOK_S, return_when=FIRST_EXCEPTION)
        if any(future.exception() for future in done):
            for future in futures:
                if future.done() and not future.cancelled():
                    future.result()
        if stop():
            raise LoadStopped
