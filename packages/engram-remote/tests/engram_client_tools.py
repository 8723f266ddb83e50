"""Clients for tests, what their rows must be, and a relay between client and server that changes or holds replies."""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

import numpy as np
from engram_remote.client import Client, ClientOptions, Staging
from engram_remote.client_results import LookupResult
from engram_tables import POISON, Bytes2D
from numpy.typing import ArrayLike, NDArray
from ofl.client import Client as OflClient
from ofl.client import connect
from ofl.contract.engram_v1.layout import HEADER, SERVICE, VERSION, Op
from ofl.errors import TransportError
from ofl.interface import Disconnected, Request
from ofl.server import Server

RANK, RANKS = 1, 2
FRAME_BYTES = 1 << 26
SECONDS = 30 * float(os.environ.get("OFL_TEST_TIME_SCALE", "1"))
MS = 1_000_000
HOLD_SECONDS = 20.0

Batches = Sequence[tuple[int, ArrayLike]]


class ClientChanges(TypedDict, total=False):
    """What a test states of `ClientOptions` itself."""

    rank: int
    layers: tuple[int, ...] | None
    key_file: Path | None
    batch_rows_max: int
    required: bool
    checksum: bool
    bounce: bool
    buffered: bool
    pread: bool
    read_threads: int
    timeout_ns: int
    connect_timeout_ns: int
    retry_ns: int
    retry_max_ns: int
    heartbeat_ns: int | None
    loss_ns: int | None
    spin_ns: int | None


class RowsOfRanks(Protocol):
    """Where expected rows come from."""

    def rank_rows(self, layer: int, rank: int, ranks: int) -> tuple[int, int]:
        """Row range of a rank."""
        ...

    def expected_of_rank(self, layer: int, rank: int, ranks: int, ids: ArrayLike) -> tuple[Bytes2D, Bytes2D]:
        """Values and scales; zero bytes for ids outside the rank's rows."""
        ...


def options_of(tables: Path, endpoint: str | None = None, **changes: Unpack[ClientChanges]) -> ClientOptions:
    """A client that is patient with a busy machine, unless told otherwise."""
    patient = ClientOptions(
        tables,
        rank=RANK,
        endpoint=endpoint,
        timeout_ns=10_000 * MS,
        connect_timeout_ns=5_000 * MS,
        retry_ns=10 * MS,
        retry_max_ns=100 * MS,
        heartbeat_ns=50 * MS,
        loss_ns=5_000 * MS,
        batch_rows_max=65_536,
        read_threads=4,
    )
    return replace(patient, **changes)


class Looker:
    """Asks for rows into one poisoned staging, and compares each with the source's rows."""

    def __init__(self, client: Client, made: RowsOfRanks, counts: Sequence[int] = (65_536, 1)) -> None:
        self.client, self.made = client, made
        self.staging: Staging = client.staging(counts)
        self.rows = 0

    def look(self, batches: Batches) -> LookupResult:
        """One lookup; every row of it must be exact."""
        self.staging.memory[:] = POISON
        result = self.client.wait(self.client.enqueue(batches, self.staging))
        self.compare(batches)
        self.rows += result.rows
        return result

    def compare(self, batches: Batches) -> None:
        """The staging holds exactly the rows of these batches."""
        counts = [len(np.asarray(ids)) for _, ids in batches]
        for (at, ids), (values, scales) in zip(batches, self.staging.planes(counts), strict=True):
            layer = self.client.layers[at]
            wanted_values, wanted_scales = self.made.expected_of_rank(layer, RANK, RANKS, ids)
            np.testing.assert_array_equal(values, wanted_values)
            np.testing.assert_array_equal(scales, wanted_scales)


def ids_of(made: RowsOfRanks, layer: int, count: int, seed: int = 0) -> NDArray[np.int32]:
    """Random rows of this rank."""
    start, end = made.rank_rows(layer, RANK, RANKS)
    return np.random.default_rng(seed).integers(start, end, count).astype(np.int32)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for what another thread or process brings about."""
    limit = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < limit, f"{what} did not come about within {SECONDS} s"
        time.sleep(0.002)


class Relay:
    """Stands between a client and a server.

    ask: what becomes of a request.  change: what becomes of the body of a LOOKUP's reply; it may wait before it
    returns.  relayed: LOOKUPs whose reply was given to the client's connection, or found it gone.
    """

    def __init__(self, scheme: str, upstream: str) -> None:
        self._server = Server(SERVICE, version_min=VERSION, version_max=VERSION, max_frame_bytes=FRAME_BYTES)
        where = "tcp://127.0.0.1:0" if scheme == "tcp" else f"shm://relay-{secrets.token_hex(6)}"
        self.endpoint = self._server.listen(where)
        self.ask: Callable[[bytearray], bytearray] = lambda sent: sent
        self.change: Callable[[bytearray], bytearray] = lambda body: body
        self.relayed = 0
        self._upstream, self._ends = upstream, dict[int, OflClient]()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            event = self._server.next_event(deadline_ns=time.monotonic_ns() + 50 * MS)
            if isinstance(event, Request):
                self._answer(event)
            elif isinstance(event, Disconnected) and event.connection in self._ends:
                self._ends.pop(event.connection).close()

    def _answer(self, request: Request) -> None:
        deadline_ns = time.monotonic_ns() + int(SECONDS * 1000) * MS
        if request.connection not in self._ends:
            self._ends[request.connection] = connect(
                self._upstream,
                service=SERVICE,
                version_min=VERSION,
                version_max=VERSION,
                max_frame_bytes=FRAME_BYTES,
                deadline_ns=deadline_ns,
                loss_ns=int(SECONDS * 1000) * MS,
            )
        sent = bytes(request.body)
        asked = bytes(self.ask(bytearray(sent)))
        body = bytearray(self._ends[request.connection].call([asked], deadline_ns=deadline_ns))
        lookup = sent[HEADER.offsets["op"]] == Op.LOOKUP
        with suppress(TransportError, ValueError):  # the client may be gone
            self._server.reply(request.connection, request.sequence, [self.change(body) if lookup else body])
        self.relayed += lookup

    def leave(self) -> None:
        """End the clients' connections, from within `change`; nothing is relayed from then on."""
        self._stopped.set()
        self._server.close()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(SECONDS)
        for end in self._ends.values():
            end.close()
        self._server.close()


@contextmanager
def relayed(scheme: str, upstream: str) -> Iterator[Relay]:
    """A relay of that wire in front of a server."""
    relay = Relay(scheme, upstream)
    try:
        yield relay
    finally:
        relay.close()
