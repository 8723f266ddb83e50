"""Tables of a simulated engine: shards on disk, a reader a rank, and in arm ON a server in a process of its own.

Owns what a step reads: the rows of its scheduled tokens, layer by layer, as an engine does.  The readers are the
product's own clients, and the hooks on them the product's own.
"""

import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from engram_remote.client import Client, ClientOptions, Staging
from engram_remote.native import EngramError, missing
from engram_remote.observe.standing import standing
from engram_remote.observe.watch import Sink, TableWatch
from engram_remote.tables.build import build
from engram_remote.tables.errors import TableError
from engram_remote.tables.heads import LayerHeads
from engram_remote.tables.manifest import Manifest
from engram_remote.tables.shard_job import BuildOptions
from engram_remote.tables.synthetic import SyntheticTables, even_heads
from ofl.contract import observation_v1 as seen

from qualification.arms.protocol import FaultOrder
from qualification.arms.serve import ArmFailedError
from qualification.arms.table_faults import TableFaults
from qualification.arms.table_ids import StepTokens, row_id
from qualification.arms.table_server import TableServer

MS = 1_000_000
HEADS = even_heads({2: 4001, 5: 2003}, columns=256, parts=4)
SCALE_BLOCK = 32
SEED, OTHER_SEED = 20_260_101, 20_260_102
POISON = 0xA5
"""What a staging holds before each lookup, so that a byte which nobody wrote shows."""
SETTLE_S = 60.0
LOOK_S = 0.002
"""How often a reader is asked whether it has met its server: the client has no event for it."""
TIMEOUT_NS, LOSS_NS, RETRY_NS, RETRY_MAX_NS = 2_000 * MS, 30_000 * MS, 10 * MS, 50 * MS
"""A held server is late long before it counts as lost."""


class Reader:
    """One rank's client, with a staging for each layer."""

    def __init__(self, client: Client, rank: int, ranks: int, rows_max: int) -> None:
        self.client, self._rows_max = client, rows_max
        per_rank = -(-HEADS.hash_columns // ranks)
        self._columns = range(rank * per_rank, min((rank + 1) * per_rank, HEADS.hash_columns))
        self._stagings: list[Staging] = []
        self._tickets: list[int] = []
        self._meetings = 0

    def prepare(self) -> None:
        """Make the stagings; once the hooks are on the client, so that they know them."""
        self._stagings = [self.client.staging([self._rows_max]) for _ in HEADS.layers]

    def begin(self, position: int, step: Sequence[StepTokens]) -> None:
        """Begin the lookup of one layer, by its position."""
        staging = self._stagings[position]
        staging.memory[:] = POISON
        ids = self._ids(HEADS.layers[position], step)
        self._tickets.append(self.client.enqueue([(position, ids)], staging))

    def end(self) -> None:
        """Wait for the lookups that were begun."""
        for ticket in self._tickets:
            self.client.wait(ticket)
        self._tickets.clear()

    def met(self, identity: str) -> bool:
        """Whether, since the last `note_meetings`, it has opened a server, or was refused by that of an identity."""
        now = standing(*self.client.connected(), self.client.manifest.identity)
        answered = now.status == "open" or (now.status == "refused" and now.offered == identity)
        # A connection that was lost counts as open until the client has seen that.
        return answered and self._answers() > self._meetings

    def note_meetings(self) -> None:
        """What was met before counts no more."""
        self._meetings = self._answers()

    def _answers(self) -> int:
        counters = self.client.counters()
        return counters["opens"] + counters["opens_refused"]

    def _ids(self, heads: LayerHeads, step: Sequence[StepTokens]) -> list[int]:
        return [
            row_id(
                entry.tokens, position, heads.layer, column, heads.offsets[column], heads.head_sizes[column]
            )
            for entry in step
            for position in range(entry.computed, entry.computed + entry.n_tokens)
            for column in self._columns
        ]


class Tables:
    """Those of one engine.  source: "local" or "remote".  tokens_max: of a step.  scratch: a folder of its own.

    Raises ArmFailedError.
    """

    def __init__(self, source: str, ranks: int, tokens_max: int, scratch: Path) -> None:
        self._scratch, self._ranks = scratch, ranks
        self._served, self._other = scratch / "served", scratch / "other"
        self._watches: list[TableWatch] = []
        self._faults: TableFaults | None = None
        try:
            manifest = make_shards(self._served, SEED, ranks)
            endpoint = f"shm://qualify-{secrets.token_hex(8)}" if source == "remote" else None
            self._server = TableServer(endpoint) if endpoint is not None else None
            rows_max = tokens_max * HEADS.hash_columns
            self._readers = [
                Reader(
                    Client(_options(self._served, rank, endpoint, rows_max), manifest), rank, ranks, rows_max
                )
                for rank in range(ranks)
            ]
        except (EngramError, TableError, ImportError, OSError) as error:
            raise ArmFailedError(f"the simulated engine has no tables: {error}") from None

    def observe(self, sinks: Sequence[Sink], key: bytes) -> None:
        """Put the hooks on the readers.  sinks: a rank's file each."""
        for reader, sink in zip(self._readers, sinks, strict=True):
            self._watches.append(TableWatch(reader.client, sink, seen.Blind(key)))
        if self._server is not None:
            make_shards(self._other, OTHER_SEED, self._ranks)
            self._faults = TableFaults(self._server, self._served, self._other, self._settle, sinks[0].write)

    def start(self) -> None:
        """Make stagings, and have a server where there is to be one.  Raises ArmFailedError."""
        for reader in self._readers:
            reader.prepare()
        if self._server is not None:
            self._server.start(self._served)
            self._settle()

    def arm(self, case: str, faults: Sequence[FaultOrder]) -> None:
        """Have a case's faults; none where there is no server."""
        if self._faults is not None:
            self._faults.arm(case, faults)

    def read(self, step: Sequence[StepTokens]) -> None:
        """Read the rows of a step's tokens, as an engine does before it computes them."""
        for watch in self._watches:
            watch.begin_step([entry.request for entry in step])
        if self._faults is not None:
            decoding = {entry.request: entry.decoding for entry in step}
            self._faults.before_lookups(self._watches[0].step, decoding)
        for position in range(len(HEADS.layers)):
            for reader in self._readers:
                reader.begin(position, step)
            for reader in self._readers:
                reader.end()
            if self._faults is not None:
                self._faults.after_lookups()

    def close(self) -> None:
        """End readers and server, and take the shards away."""
        for reader in self._readers:
            reader.client.close()
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _settle(self) -> None:
        """Until every reader has opened the server that is there, or was refused by it.  Raises ArmFailedError."""
        assert self._server is not None, "only where there is one"
        for reader in self._readers:
            _until(
                partial(reader.met, self._server.identity), "a reader of table rows has not met its server"
            )
            reader.note_meetings()


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    end_s = time.monotonic() + SETTLE_S
    while not condition():
        if time.monotonic() > end_s:
            raise ArmFailedError(f"{otherwise} within {SETTLE_S:g} s")
        time.sleep(LOOK_S)


def make_shards(folder: Path, seed: int, ranks: int) -> Manifest:
    """Write the shards of a seed.  Raises TableError and OSError."""
    source = SyntheticTables(seed, HEADS, SCALE_BLOCK)
    return build(source, folder, BuildOptions(ranks), lambda _what, _done, _total: None)


def _options(folder: Path, rank: int, endpoint: str | None, rows_max: int) -> ClientOptions:
    return ClientOptions(
        tables=folder,
        rank=rank,
        endpoint=endpoint,
        batch_rows_max=rows_max,
        checksum=not missing("checksum"),
        read_threads=2,
        timeout_ns=TIMEOUT_NS,
        retry_ns=RETRY_NS,
        retry_max_ns=RETRY_MAX_NS,
        loss_ns=LOSS_NS,
        spin_ns=0,
    )
