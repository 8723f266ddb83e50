"""A server of this process over tcp and shm, and a client that speaks to it through the contract's Python codec.

The codec is a second opinion: the server's bytes are read and written by other code than its own.
"""

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from engram_remote.server.load import loaded_tables
from engram_remote.server.service import ServerLimits, TableServer
from engram_remote.tables.build import build
from engram_remote.tables.manifest import Manifest, read_manifest
from engram_remote.tables.shard_job import BuildOptions
from engram_remote.tables.source import checkpoint
from engram_tables import POISON, Bytes2D, TinyCheckpoint
from numpy.typing import ArrayLike
from ofl.client import Client, connect
from ofl.contract.engram_v1 import (
    SERVICE,
    Envelope,
    Lookup,
    LookupFlag,
    LookupPart,
    LookupReply,
    Op,
    Open,
    OpenLayer,
    OpenReply,
    Reply,
    Request,
    Stats,
    StatsReply,
    decode_reply,
    encode_request,
)
from ofl.memory import Buffer

WIRES = ("tcp", "shm")
SECONDS = 20
LIMITS = ServerLimits(gather_threads=2, batch_rows_max=131072, reply_buffers=3, spin_ns=20_000)


def soon(seconds: float = SECONDS) -> int:
    """A deadline, in nanoseconds of the monotonic clock."""
    return time.monotonic_ns() + int(seconds * 1e9)


@dataclass(frozen=True)
class Served:
    """A server that runs.  endpoints: by wire."""

    server: TableServer
    manifest: Manifest
    endpoints: dict[str, str]
    thread: threading.Thread

    def open_message(self, rank: int = 0, batch_rows_max: int = 65536) -> Open:
        """What a client with these tables says: all layers of a rank."""
        shards = [shard for shard in self.manifest.shards if shard.rank == rank]
        layers = tuple(OpenLayer(shard.layer, shard.row_start, shard.row_end) for shard in shards)
        return Open(
            bytes.fromhex(self.manifest.identity),
            self.manifest.columns,
            self.manifest.scales,
            rank,
            self.manifest.ranks,
            batch_rows_max,
            layers,
        )


def built(made: TinyCheckpoint, folder: Path, ranks: int = 2) -> Path:
    """A folder of shards made from a checkpoint."""
    with checkpoint(made.folder, scale_block=made.scale_block) as source:
        build(source, folder, BuildOptions(ranks, chunk_bytes=1 << 20), lambda _step, _done, _total: None)
    return folder


@contextmanager
def served(
    folder: Path,
    *,
    limits: ServerLimits = LIMITS,
    ranks: Sequence[int] = (),
    key_file: Path | None = None,
    allowed: Sequence[str] = (),
) -> Iterator[Served]:
    """The tables of a folder over every wire; at the end the server is stopped and must end cleanly."""
    manifest = read_manifest(folder)
    shards = [shard for shard in manifest.shards if not ranks or shard.rank in ranks]
    with ExitStack() as stack:
        tables = stack.enter_context(loaded_tables(folder, manifest, shards, threads=2, full=True))
        server = stack.enter_context(TableServer(manifest, limits, key_file=key_file, allowed=allowed))
        for table in tables:
            server.add_table(table)
        tcp = server.listen("tcp://127.0.0.1:0")
        shm = server.listen(f"shm://engram-{secrets.token_hex(6)}")
        server.prepare()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                server.run()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield Served(server, manifest, {"tcp": tcp, "shm": shm}, thread)
        finally:
            server.stop()
            thread.join(SECONDS)
            assert not thread.is_alive(), "the server does not end"
            assert not failures, failures


@dataclass
class Caller:
    """One connection.  opened: its OPEN, once it was answered."""

    client: Client
    opened: Open | None = None
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1 << 62)))

    def call(self, message: Request, op: Op) -> Reply:
        """Ask and decode; the body comes in memory of the transport's."""
        envelope = Envelope(op, next(self.numbers))
        body = self.client.call(encode_request(envelope, message), deadline_ns=soon())
        return decode_reply(body, envelope, message, self.opened)

    def open(self, message: Open) -> Reply:
        reply = self.call(message, Op.OPEN)
        if isinstance(reply, OpenReply):
            self.opened = message
        return reply

    def lookup(self, lookup: Lookup, room: int | None = None) -> Reply:
        """A lookup placed into poisoned staging.  room: of the staging, bytes; default: what the reply needs."""
        assert self.opened is not None
        size = reply_bytes(lookup, self.opened) if room is None else room
        envelope = Envelope(Op.LOOKUP, next(self.numbers))
        with Buffer(max(size, 1024)) as staging:
            staging.view[:] = bytes([POISON]) * staging.nbytes
            self.client.register(staging)
            sequence = self.client.submit(
                encode_request(envelope, lookup),
                deadline_ns=soon(),
                into=staging.range(0, max(size, 1024) if room is None else room),
            )
            body = bytes(self.client.wait(sequence, deadline_ns=soon()))
            after = bytes(staging.view[len(body) :])
        assert after == bytes([POISON]) * len(after), "bytes behind the reply were written"
        return decode_reply(body, envelope, lookup, self.opened)

    def rows(
        self, ids: ArrayLike, layer: int = 0, flags: LookupFlag = LookupFlag.NONE
    ) -> tuple[Bytes2D, Bytes2D]:
        """Values and scales of one layer's ids; the reply must be one."""
        reply = self.lookup(lookup_of({layer: ids}, flags))
        assert isinstance(reply, LookupReply), reply
        return self.arrays(reply)[0]

    def arrays(self, reply: LookupReply) -> list[tuple[Bytes2D, Bytes2D]]:
        """Values [n, columns] and scales [n, scales] of each part."""
        assert self.opened is not None
        return [
            (
                np.frombuffer(part.values, np.uint8).reshape(-1, self.opened.columns),
                np.frombuffer(part.scales, np.uint8).reshape(-1, self.opened.scales),
            )
            for part in reply.parts
        ]

    def stats(self) -> StatsReply:
        reply = self.call(Stats(), Op.STATS)
        assert isinstance(reply, StatsReply), reply
        return reply


def lookup_of(ids: dict[int, ArrayLike], flags: LookupFlag = LookupFlag.NONE) -> Lookup:
    """A LOOKUP of ids by position in OPEN's layers."""
    parts = (LookupPart(layer, np.asarray(one, "<u4").tobytes()) for layer, one in ids.items())
    return Lookup(tuple(parts), flags)


def reply_bytes(lookup: Lookup, opened: Open) -> int:
    """Length of the reply, from the contract's prose: a head of 64 bytes, every plane up to a multiple of 64."""
    size = 64
    for part in lookup.parts:
        for width in (opened.columns, opened.scales):
            size += (part.rows * width + 63) // 64 * 64
    return size


@contextmanager
def called(
    endpoint: str,
    message: Open | None = None,
    *,
    frame_bytes: int = 1 << 26,
    key_file: Path | None = None,
) -> Iterator[Caller]:
    """A connection; with message, opened."""
    client = connect(
        endpoint,
        service=SERVICE,
        version_min=1,
        version_max=1,
        max_frame_bytes=frame_bytes,
        deadline_ns=soon(),
        key_file=key_file,
    )
    try:
        caller = Caller(client)
        if message is not None:
            reply = caller.open(message)
            assert isinstance(reply, OpenReply), reply
        yield caller
    finally:
        client.close()
