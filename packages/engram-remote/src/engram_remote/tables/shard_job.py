"""One shard of a build: produced chunk by chunk, digested, written, gone on with, and named when it is complete."""

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ofl.contract.records import Buffer
from ofl.files import open_plain, sync_folder

from engram_remote.tables.errors import BuildError
from engram_remote.tables.journal import Journal
from engram_remote.tables.layout import HEADER_BYTES, ShardHeader, pack_header
from engram_remote.tables.source import Advance, Source

CHUNK_BYTES = 16 << 20
"""A shard of 100 GiB has 6,400 of them: enough for all cores, and 420 KB of manifest."""


@dataclass(frozen=True)
class BuildOptions:
    """ranks: shards of each layer.  rank: write the files of this rank alone.  chunk_bytes: a multiple of 4,096."""

    ranks: int
    rank: int | None = None
    chunk_bytes: int = CHUNK_BYTES


def shard_name(layer: int, rank: int) -> str:
    """A shard's file name."""
    return f"layer-{layer}.rank-{rank}.engram"


@dataclass(frozen=True)
class ShardJob:
    """One shard."""

    source: Source
    folder: Path
    journal: Journal
    header: ShardHeader
    options: BuildOptions

    @property
    def name(self) -> str:
        return shard_name(self.header.layer, self.header.rank)

    @property
    def final(self) -> Path:
        return self.folder / self.name

    @property
    def part(self) -> Path:
        return self.folder / f"{self.name}.part"

    @property
    def kept(self) -> bool:
        """Whether its file is written; the digests of the others are in the manifest all the same."""
        return self.options.rank in (None, self.header.rank)

    @property
    def chunk_count(self) -> int:
        return -(-self.header.file_bytes // self.options.chunk_bytes)

    def size_there(self) -> int:
        """Bytes that are written already."""
        paths = [path for path in (self.final, self.part) if path.exists()]
        return paths[0].stat().st_size if paths else 0

    def make(self, advance: Advance) -> dict[str, Any]:
        """The shard's entry in the manifest, after its file is complete under its own name."""
        if not self.kept:
            sha256, chunks = self._digested(advance)
        elif self.final.exists():
            sha256, chunks = self._found(advance)
        else:
            sha256, chunks = self._written(advance)
        return {
            "file": self.name,
            "layer": self.header.layer,
            "rank": self.header.rank,
            "row_start": self.header.row_start,
            "row_end": self.header.row_end,
            "bytes": self.header.file_bytes,
            "sha256": sha256,
            "chunk_bytes": self.options.chunk_bytes,
            "chunks": chunks,
        }

    def _digested(self, advance: Advance) -> tuple[str, list[str]]:
        """Digests of a shard that another host keeps."""
        known, chunks = self.journal.shard(self.name), self.journal.chunks(self.name)
        if known is None or len(chunks) != self.chunk_count:
            return self._produce(hashlib.sha256(), [], None, advance)
        advance(self.header.file_bytes)
        return known, chunks

    def _found(self, advance: Advance) -> tuple[str, list[str]]:
        """Digests of a shard that an earlier attempt completed.

        Chunks that the journal lost are packed again and compared.  Raises BuildError where it is not that one.
        """
        with open_plain(self.final) as file:
            whole, chunks = self._agreeing(file, advance)
            file.seek(len(chunks) * self.options.chunk_bytes)
            for index in range(len(chunks), self.chunk_count):
                packed = self._chunk(index)
                if _read_up_to(file, len(packed)) != packed:
                    break
                whole.update(packed)
                chunks.append(_sha256(packed))
                self.journal.add_chunk(self.name, index, chunks[-1])
                advance(len(packed))
            if len(chunks) != self.chunk_count or file.read(1):
                raise BuildError(f"{self.final}: is there already, and is not what this build would write")
        return whole.hexdigest(), chunks

    def _written(self, advance: Advance) -> tuple[str, list[str]]:
        """Go on with the part as far as it agrees with the journal."""
        with self.part.open("r+b" if self.part.exists() else "x+b", buffering=0) as file:
            whole, chunks = self._agreeing(file, advance)
            file.seek(len(chunks) * self.options.chunk_bytes)
            file.truncate(min(len(chunks) * self.options.chunk_bytes, self.header.file_bytes))
            try:
                sha256, chunks = self._produce(whole, chunks, file, advance)
                os.fsync(file.fileno())
            except OSError as error:
                raise BuildError(
                    f"{self.part}: {error.strerror}; the same command goes on from there when that is mended"
                ) from error
        self.part.rename(self.final)
        sync_folder(self.folder)
        return sha256, chunks

    def _agreeing(self, file: BinaryIO, advance: Advance) -> tuple[Any, list[str]]:
        """The leading chunks of a file that are what the journal says, and the running digest over them."""
        whole, agreed = hashlib.sha256(), list[str]()
        for recorded in self.journal.chunks(self.name)[: self.chunk_count]:
            size = self._span(len(agreed))[1] - self._span(len(agreed))[0]
            data = _read_up_to(file, size)
            if len(data) != size or _sha256(data) != recorded:
                break
            if not agreed and data[:HEADER_BYTES] != pack_header(self.header):  # of another source
                break
            whole.update(data)
            agreed.append(recorded)
            advance(size)
        return whole, agreed

    def _produce(
        self, whole: Any, chunks: list[str], file: BinaryIO | None, advance: Advance
    ) -> tuple[str, list[str]]:
        """All chunks from len(chunks) on: packed one ahead of the digests, which run beside the write."""
        chunks = list(chunks)
        with ThreadPoolExecutor(2) as pool:
            upcoming = self._submit(pool, len(chunks))
            while upcoming is not None:
                data = upcoming.result()
                upcoming = self._submit(pool, len(chunks) + 1)
                digest = pool.submit(_sha256, data)
                if file is not None:
                    _write_all(file, data)
                whole.update(data)
                self.journal.add_chunk(self.name, len(chunks), digest.result())
                chunks.append(digest.result())
                advance(len(data))
        sha256: str = whole.hexdigest()
        self.journal.add_shard(self.name, sha256)
        return sha256, chunks

    def _submit(self, pool: ThreadPoolExecutor, index: int) -> "Future[memoryview] | None":
        return pool.submit(self._chunk, index) if index < self.chunk_count else None

    def _span(self, index: int) -> tuple[int, int]:
        start = index * self.options.chunk_bytes
        return start, min(start + self.options.chunk_bytes, self.header.file_bytes)

    def _chunk(self, index: int) -> memoryview:
        """Bytes of one chunk of the file: chunks begin and end within rows."""
        start, end = self._span(index)
        header, row_bytes = self.header, self.header.row_bytes
        lead = pack_header(header)[start:end] if start < HEADER_BYTES else b""
        first = max(start - HEADER_BYTES, 0) // row_bytes
        last = -(-max(end - HEADER_BYTES, 0) // row_bytes)
        if first >= last:
            return memoryview(lead)
        rows = self.source.read(header.layer, header.row_start + first, header.row_start + last)
        skip = max(start - HEADER_BYTES, 0) - first * row_bytes
        body = memoryview(rows.reshape(-1).data)[skip : skip + (end - start - len(lead))]
        return memoryview(lead + bytes(body)) if lead else body


def _sha256(data: Buffer) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_up_to(file: BinaryIO, size: int) -> bytes:
    """As many of size bytes as the file has; one unbuffered read may give fewer."""
    data = file.read(size)
    while data and len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


def _write_all(file: BinaryIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]
