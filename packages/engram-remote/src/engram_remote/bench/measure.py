"""Measures lookups, and what they are made of, in one run on one host.

Owns what is timed and over what: the spans of lookups are the library's own, from when the proxy takes one up until its
rows lie in staging, as an engine's stream waits for them.  Every lookup has ids of its own, drawn over the whole shard.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ofl.bench.figures import Case, Mode
from ofl.bench.measure import Meter, Target
from ofl.bench.own_server import own_server
from ofl.contract.engram_v1.layout import reply_bytes
from ofl.endpoint import parse_endpoint
from ofl.errors import TransportError

from engram_remote.bench.figures import DISK_COLD, DISK_WARM, LOCAL_RAM, REMOTE, Size, Spread
from engram_remote.bench.residency import resident_share
from engram_remote.client import Client, ClientOptions
from engram_remote.client_options import PATIENT_HEARTBEAT_NS, PATIENT_LOSS_NS
from engram_remote.tables.layout import HEADER_BYTES
from engram_remote.tables.manifest import Manifest, read_manifest
from engram_remote.tables.verify import open_shard

TIMEOUT_NS = 10_000_000_000
"""Of a lookup and of a transfer: a slow one is measured, not replaced by a local one."""
WIRE_S = 0.5
"""About how long the wire alone is measured."""
WARM_UPS = 3
ROUNDS_MIN = 10
KIND_S = 10.0
"""Lookups of one kind end there, once ROUNDS_MIN were measured: a cold disk may take half a second for each."""


class ElsewhereError(TransportError):
    """A lookup was not served from where it was to be measured."""


@dataclass(frozen=True)
class Plan:
    """What to measure.

    endpoints: of table servers.  wires: of `ofl bench serve` beside them, by endpoint; where one is missing, a server
    of our own is tried at the endpoint's address.  rounds: lookups of each kind, at most.
    """

    tables: Path
    endpoints: tuple[str, ...]
    wires: dict[str, str]
    sizes: tuple[int, ...]
    rounds: int
    rank: int
    layer: int
    seed: int
    key_file: Path | None
    spin_us: int


@dataclass(frozen=True)
class Measured:
    """sizes: in order.  shard_bytes: of the rows that ids were drawn from.  disk: how shards are read, by source.

    resident: share of the shard's pages that the page cache held before the lookups of a source.  unmeasured: why a
    wire is missing, by endpoint.
    """

    sizes: tuple[Size, ...]
    shard_bytes: int
    disk: dict[str, str]
    resident: dict[str, float]
    unmeasured: dict[str, str]


class Bench:
    """One rank's shard of one layer: its rows in memory, its file, and clients.  A context manager.

    Raises the errors of `Client`, ManifestError, ShardError, MemoryError; ValueError for a rank or layer that is not
    there.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.manifest: Manifest = read_manifest(plan.tables)
        layers = [entry.layer for entry in self.manifest.layers]
        if plan.layer not in layers:
            raise ValueError(f"--layer: {plan.layer} is not one of the manifest's {layers}")
        if plan.rank >= self.manifest.ranks:
            raise ValueError(f"--rank: {plan.rank} is not one of the manifest's {self.manifest.ranks}")
        self.shard = self.manifest.shard(plan.layer, plan.rank)
        self.path = plan.tables / self.shard.file
        self._random = np.random.default_rng(plan.seed)
        row = self.manifest.columns + self.manifest.scales
        count = self.shard.row_end - self.shard.row_start
        with open_shard(plan.tables, self.manifest, self.shard) as opened:
            assert opened.stat.size == self.shard.bytes, "or it had been refused"
        self._rows: NDArray[np.void] = np.fromfile(self.path, np.dtype((np.void, row)), offset=HEADER_BYTES)
        assert len(self._rows) == count, "the manifest's sizes are those of the files"
        self._row_bytes = row

    def run(self, tell: Callable[[str], None]) -> Measured:
        """Everything.  tell: what is being measured.  Raises ElsewhereError where a lookup ended another way."""
        found: dict[int, dict[tuple[str, str], Spread]] = {rows: {} for rows in self.plan.sizes}
        wire: dict[int, dict[str, Spread]] = {rows: {} for rows in self.plan.sizes}
        unmeasured: dict[str, str] = {}
        for endpoint in self.plan.endpoints:
            tell(f"lookups over {endpoint}")
            with self._client(endpoint=endpoint, required=True) as client:
                for rows in self.plan.sizes:
                    found[rows][REMOTE, endpoint] = self._lookups(client, rows, "remote")
            tell(f"the wire of {endpoint} alone")
            for rows, spread in self._wire(endpoint, unmeasured).items():
                wire[rows][endpoint] = spread
        tell("gathers in this process's memory")
        gathers = {rows: self._gathers(rows) for rows in self.plan.sizes}
        disk: dict[str, str] = {}
        resident: dict[str, float] = {}
        for source in (DISK_WARM, DISK_COLD):
            tell(f"lookups from {source}")
            warm = source == DISK_WARM
            with self._client(buffered=warm) as client:
                before = _warm if warm else _evict
                before(self.path)
                disk[source], resident[source] = client.shards(), resident_share(self.path)
                for rows in self.plan.sizes:
                    found[rows][source, ""] = self._lookups(
                        client, rows, "local", None if warm else lambda: _evict(self.path)
                    )
        sizes = []
        for rows in self.plan.sizes:
            found[rows][LOCAL_RAM, ""] = gathers[rows]
            sizes.append(Size(rows, self._row_bytes, gathers[rows], wire[rows], found[rows]))
        return Measured(tuple(sizes), self._rows.nbytes, disk, resident, unmeasured)

    @contextmanager
    def _client(
        self, *, endpoint: str | None = None, required: bool = False, buffered: bool = False
    ) -> Iterator[Client]:
        client = Client(
            ClientOptions(
                self.plan.tables,
                self.plan.rank,
                endpoint,
                layers=(self.plan.layer,),
                key_file=self.plan.key_file if endpoint else None,
                batch_rows_max=max(self.plan.sizes),
                required=required,
                buffered=buffered,
                timeout_ns=TIMEOUT_NS,
                heartbeat_ns=PATIENT_HEARTBEAT_NS,
                loss_ns=PATIENT_LOSS_NS,
                spin_ns=self.plan.spin_us * 1000,
            ),
            self.manifest,
        )
        try:
            yield client
        finally:
            client.close()

    def _ids(self, rows: int) -> NDArray[np.int32]:
        return self._random.integers(self.shard.row_start, self.shard.row_end, rows, np.int32)

    def _lookups(
        self, client: Client, rows: int, outcome: str, before: Callable[[], None] | None = None
    ) -> Spread:
        staging = client.staging([rows])
        samples: list[int] = []
        enough = time.monotonic() + KIND_S
        for turn in range(WARM_UPS + self.plan.rounds):
            if before is not None:
                before()
            result = client.wait(client.enqueue([(0, self._ids(rows))], staging))
            if result.outcome != outcome:
                was = f"{result.outcome} ({result.reason})"
                raise ElsewhereError(f"a lookup of {rows} rows was {was}, not {outcome}")
            if turn >= WARM_UPS:
                samples.append(result.elapsed_ns)
            if len(samples) >= ROUNDS_MIN and time.monotonic() > enough:
                break
        return Spread.of(samples)

    def _gathers(self, rows: int) -> Spread:
        """numpy.take of packed rows: one copy of each row, out of a table of the same size."""
        out = np.empty(rows, self._rows.dtype)
        samples = []
        for turn in range(WARM_UPS + self.plan.rounds):
            ids = self._ids(rows).astype(np.intp) - self.shard.row_start
            begun = time.perf_counter_ns()
            np.take(self._rows, ids, out=out, mode="clip")  # without "clip" numpy copies `out` once more
            samples += [time.perf_counter_ns() - begun] if turn >= WARM_UPS else []
        return Spread.of(samples)

    def _wire(self, endpoint: str, unmeasured: dict[str, str]) -> dict[int, Spread]:
        """A placed reply of a lookup's size, one at a time, from a bench server over the same transport."""
        found = {}
        try:
            with ExitStack() as stack:
                where = self.plan.wires.get(endpoint)
                if where is None:
                    where = stack.enter_context(_wire_server(endpoint, self.plan.spin_us))
                key = str(self.plan.key_file) if self.plan.key_file and endpoint in self.plan.wires else None
                target = Target(where, self.plan.spin_us, TIMEOUT_NS, key)
                meter = stack.enter_context(Meter(target))
                for rows in self.plan.sizes:
                    size = reply_bytes(rows, self.manifest.columns, self.manifest.scales)
                    case = Case(Mode.TO_CLIENT, size, placed=True, alone=True)
                    latency = meter.measure(case, WIRE_S).latency
                    found[rows] = Spread(
                        latency.count, latency.min_ns, latency.p50_ns, latency.p99_ns, latency.max_ns
                    )
        except TransportError as error:
            unmeasured[endpoint] = str(error)
        return found


def _wire_server(endpoint: str, spin_us: int) -> AbstractContextManager[str]:
    target = parse_endpoint(endpoint)
    where = (
        f"shm://engram-wire-{os.getpid()}"
        if target.scheme == "shm"
        else f"{target.scheme}://{_address(target.host)}:0"
    )
    return own_server(where, spin_us=spin_us, key_file=None)


def _address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _warm(path: Path) -> None:
    """Have the page cache hold the file, as far as memory allows."""
    block = bytearray(1 << 22)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass


def _evict(path: Path) -> None:
    """Have the page cache forget the file.  What a disk or a hypervisor caches beneath stays."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sizes_of(text: str) -> Sequence[int]:
    """Numbers of rows, from "288,49152".  Raises ValueError."""
    found = [int(part) for part in text.split(",")]
    if not all(1 <= rows <= 1 << 20 for rows in found):
        raise ValueError(f"1 to {1 << 20} rows are needed, not {text}")
    return found
