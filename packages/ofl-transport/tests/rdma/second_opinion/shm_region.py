"""The region of shared memory: laid out, made and judged as docs/transport/shm.md says.

Owns the mapping.  Words that both processes use are read and written whole, 8 bytes at a time.
"""

import fcntl
import mmap
import os
import threading
import time
from dataclasses import astuple, dataclass
from pathlib import Path

from rdma.second_opinion.records import Record, WireFaultError, require

MAGIC = b"OFL-SHM\0"
VERSION = 1
ABSENT, ATTACHED, CLOSED = 0, 1, 2
RING_BYTES_MIN, RING_BYTES_MAX = 1 << 16, 1 << 20
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class ShmEnd(Record):
    FORMAT = "<Q Q Q Q 96s Q 120s Q Q Q 104s"
    process: int
    process_start: int
    process_nonce: int
    heartbeat_ns: int
    reserved: bytes
    taken: int
    reserved_2: bytes
    sleeps: int
    room_wanted: int
    state: int
    reserved_3: bytes

    def judge(self) -> None:
        require(self.state in (ABSENT, ATTACHED, CLOSED), f"state is {self.state}")

    @staticmethod
    def ours() -> "ShmEnd":
        """Of this process, attached."""
        start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        nonce = int.from_bytes(os.urandom(8), "little")
        beat_ns = time.monotonic_ns()
        return ShmEnd(
            os.getpid(), start, nonce, beat_ns, bytes(96), 0, bytes(120), 0, 0, ATTACHED, bytes(104)
        )


@dataclass(frozen=True)
class ShmHeader(Record):
    FORMAT = "<8s Q Q 96s Q 384s 384s 3200s"
    magic: bytes
    region_bytes: int
    ring_bytes: int
    reserved: bytes
    version: int
    server: bytes
    client: bytes
    reserved_2: bytes

    def judge(self) -> None:
        require(self.magic == MAGIC, f"magic is {self.magic!r}")
        require(self.version == VERSION, f"version is {self.version}")
        require(is_ring_size(self.ring_bytes), f"ring_bytes is {self.ring_bytes}")
        require(self.region_bytes == 4096 + 2 * self.ring_bytes, f"region_bytes is {self.region_bytes}")
        ShmEnd.unpack(self.server)
        ShmEnd.unpack(self.client)


def offsets(kind: type[Record]) -> dict[str, int]:
    return {name: offset for offset, _, name in kind.rows()}


_IN_END, _IN_HEADER = offsets(ShmEnd), offsets(ShmHeader)
_FENCE = threading.Lock()


def fence() -> None:
    """What was written before is seen by others before anything is read after: a lock's locked instruction."""
    with _FENCE:
        pass


def is_ring_size(nbytes: int) -> bool:
    return RING_BYTES_MIN <= nbytes <= RING_BYTES_MAX and nbytes & (nbytes - 1) == 0


class Region:
    """A mapping.  Made by `make` or `attach`."""

    def __init__(self, mapping: mmap.mmap, ring_bytes: int) -> None:
        self.ring_bytes = ring_bytes
        self._mapping = mapping
        self.bytes = memoryview(mapping)
        self.words = self.bytes.cast("Q")

    @staticmethod
    def make(ring_bytes: int) -> "tuple[Region, int]":
        """The server's part: sealed, filled in, and its descriptor, which the caller closes."""
        size = ShmHeader.size() + 2 * ring_bytes
        descriptor = os.memfd_create("second opinion", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.posix_fallocate(descriptor, 0, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        region = Region(mmap.mmap(descriptor, size), ring_bytes)
        header = ShmHeader(
            MAGIC, size, ring_bytes, bytes(96), 0, ShmEnd.ours().pack(), bytes(ShmEnd.size()), bytes(3200)
        )
        region.bytes[: ShmHeader.size()] = header.pack()
        region.words[_IN_HEADER["version"] // 8] = VERSION
        return region, descriptor

    @staticmethod
    def attach(descriptor: int, ring_bytes: int, region_bytes: int) -> "Region":
        """The client's part: judged, and its own end filled in.  Raises WireFaultError."""
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        require(seals & SEALS == SEALS, f"the seals are {seals:#x}")
        size = os.fstat(descriptor).st_size
        require(size == region_bytes, f"the region has {size} bytes, not {region_bytes}")
        region = Region(mmap.mmap(descriptor, size), ring_bytes)
        header = ShmHeader.unpack(bytes(region.bytes[: ShmHeader.size()]))
        require((header.region_bytes, header.ring_bytes) == (size, ring_bytes), "the header has other sizes")
        server, client = ShmEnd.unpack(header.server), ShmEnd.unpack(header.client)
        require(server.state == ATTACHED and server.process != 0, "the server's end does not stand")
        require(not any(client.pack()), "the client's end is not blank")
        start = _IN_HEADER["client"]
        region.bytes[start : start + ShmEnd.size()] = ShmEnd.ours().pack()
        return region

    def end(self, name: str) -> "End":
        """Of the server or the client."""
        return End(self, _IN_HEADER[name])

    def ring(self, to: str) -> memoryview:
        """The bytes of the ring that goes to this end."""
        start = ShmHeader.size() + (self.ring_bytes if to == "client" else 0)
        return self.bytes[start : start + self.ring_bytes]

    def close(self) -> None:
        self.words.release()
        self.bytes.release()
        try:
            self._mapping.close()
        except BufferError:
            raise WireFaultError("a ring of this region is still in use") from None


class End:
    """The words of one end, by name."""

    def __init__(self, region: Region, offset: int) -> None:
        self._region, self._offset = region, offset

    def load(self, name: str) -> int:
        return self._region.words[(self._offset + _IN_END[name]) // 8]

    def store(self, name: str, value: int) -> None:
        self._region.words[(self._offset + _IN_END[name]) // 8] = value

    def record(self) -> ShmEnd:
        """All of it.  Raises WireFaultError."""
        return ShmEnd(*astuple(ShmEnd.unpack(bytes(self._region.bytes[self._offset :][: ShmEnd.size()]))))
