"""The client: rows of a rank's tables by their ids, from a server's memory or from the local shards, exact or an
error.

The binding of `engram_client_*`.  ctypes releases the interpreter lock during every call, and the library's own
threads never take it.
"""

import ctypes
import functools
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from ofl.arguments import unsigned
from ofl.contract.engram_v1.layout import REPLY_HEAD_BYTES, plane_bytes

from engram_remote import abi, client_results, native
from engram_remote.abi import Outcome, Status
from engram_remote.client_handle import ClientHandle
from engram_remote.client_options import ClientOptions as ClientOptions
from engram_remote.client_options import abi_options, as_ids
from engram_remote.client_results import Latency, LookupResult
from engram_remote.native import EngramError
from engram_remote.tables.layout import Bytes2D
from engram_remote.tables.manifest import Manifest, read_manifest

ALIGNMENT = 64
SLICE_NS = 200_000_000
"""The longest time in one call of a wait: signal handlers run between the calls."""

_CLASSES: dict[int, type[EngramError]] = {
    Status.DEADLINE: client_results.LookupDeadlineError,
    Status.UNKNOWN: client_results.TicketError,
    Status.FAILED: client_results.RowsError,
    Status.SHARD: client_results.ClientShardError,
    Status.CLOSED: client_results.ClientClosedError,
    Status.LOST: client_results.NoServerError,
    Status.REFUSED: native.RefusedError,
    Status.INVALID: native.InvalidError,
}


class Staging:
    """Memory where rows land.  One lookup at a time may be open on it.

    memory: all of it, u8, at a multiple of 64 bytes.  number: as the client counts it.
    """

    def __init__(self, memory: NDArray[np.uint8], number: int, columns: int, scales: int) -> None:
        self.memory, self.number = memory, number
        self._columns, self._scales = columns, scales

    def planes(self, counts: Sequence[int]) -> list[tuple[Bytes2D, Bytes2D]]:
        """Values [count, columns] and scales [count, scales], u8, of each batch of a lookup with these counts.

        Views: they hold the rows from when the lookup has ended until the next one is enqueued.
        """
        found, at = [], REPLY_HEAD_BYTES
        for count in counts:
            pair = []
            for width in (self._columns, self._scales):
                pair.append(self.memory[at : at + count * width].reshape(count, width))
                at += plane_bytes(count, width)
            found.append((pair[0], pair[1]))
        return found


class Client:
    """One rank's rows.  Any thread may use it; lookups are served one after another, in order of arrival.

    manifest: of options.tables; None: it is read from there.  After fork() the child may only close it.

    Raises ManifestError, ClientShardError (a shard is not what it should be), ValueError or EngramError naming the
    option, and with `required` RefusedError (with both identities) or NoServerError.
    """

    def __init__(self, options: ClientOptions, manifest: Manifest | None = None) -> None:
        self._library = native.loaded()
        self._handle = ClientHandle(self._library)
        self.options = options
        self.manifest = read_manifest(options.tables) if manifest is None else manifest
        self.layers = options.chosen_layers(self.manifest)
        self._keeping = threading.RLock()  # of the next; re-entrant, for signal handlers
        self._pending: dict[int, tuple[int, list[Any]]] = {}
        """Ticket and ids of the last lookup on a staging, by its number."""
        self._memories: dict[object, NDArray[np.uint8]] = {}
        """What the library may write to until it is closed, each under a key of its own."""
        self._own: Staging | None = None
        record = abi_options(options, self.manifest)
        _check(lambda *room: self._library.engram_client_create(record, self._handle.pointer, *room))

    # ---- memory ----

    def staging(self, counts: Sequence[int], memory: NDArray[np.uint8] | None = None) -> Staging:
        """Memory for lookups of up to so many rows in each batch.

        memory: contiguous writable u8 at a multiple of 64 bytes, at least `staging_bytes(counts)`; None: new memory.
        Kept until the client is closed.  Raises EngramError naming what does not fit.
        """
        if memory is None:
            memory = aligned_bytes(self.staging_bytes(counts))
        if not (memory.flags.c_contiguous and memory.flags.writeable and memory.dtype == np.uint8):
            raise ValueError("memory: writable contiguous bytes are needed")
        # Before the library has it: a signal's handler may raise once it does, and nobody else may keep it then.
        key = object()
        self._memories[key] = memory
        try:
            number = self.add_staging(memory.ctypes.data, memory.nbytes)
        except EngramError:  # nothing of it was kept
            del self._memories[key]
            raise
        return Staging(memory, number, self.manifest.columns, self.manifest.scales)

    def staging_bytes(self, counts: Sequence[int]) -> int:
        """Bytes that a lookup with these counts needs."""
        numbers = (ctypes.c_uint32 * len(counts))(*(unsigned("counts", count, 32) for count in counts))
        shape = (len(counts), self.manifest.columns, self.manifest.scales)
        return int(self._library.engram_staging_bytes(numbers, *shape))

    def add_staging(self, address: int, size: int) -> int:
        """As `staging`, for memory of anyone's that outlives the client; its number."""
        number = ctypes.c_uint32()
        place = (address, size, number)
        with self._handle as handle:
            _check(lambda *room: self._library.engram_client_add_staging(handle, *place, *room))
        return number.value

    # ---- lookups ----

    def enqueue(self, batches: Sequence[tuple[int, ArrayLike]], staging: Staging) -> int:
        """Begin a lookup; its ticket.

        batches: (position in `layers`, ids), no layer twice.  ids: whole numbers that fit i32; those outside the
        rank's rows yield rows of zero bytes.  Raises EngramError naming what cannot be served, ValueError for a
        position that is none, OverflowError for ids over 32 bits.
        """
        arrays = [as_ids(ids) for _, ids in batches]
        layers = [unsigned(f"batches[{at}].layer", layer, 32) for at, (layer, _) in enumerate(batches)]
        records = (abi.BatchRecord * len(arrays))(
            *(
                abi.BatchRecord(array.ctypes.data, len(array), layer)
                for layer, array in zip(layers, arrays, strict=True)
            )
        )
        ticket = self._enqueue(records, len(arrays), staging.number)
        with self._keeping:  # the ids are read until the lookup has ended
            # Another thread's later lookup on this staging may be there already; then this one has ended.
            if self._pending.get(staging.number, (0, []))[0] < ticket:
                self._pending[staging.number] = (ticket, arrays)
        return ticket

    def wait(self, ticket: int, deadline_ns: int | None = None) -> LookupResult:
        """Wait until a lookup has ended.

        deadline_ns: absolute, of CLOCK_MONOTONIC; None: for as long as it takes.  Raises LookupDeadlineError,
        TicketError, RowsError (no rows; the text names the shard), ClientClosedError.
        """
        result = self._wait(ticket, deadline_ns)
        with self._keeping:
            for number, (open_ticket, _) in list(self._pending.items()):
                if open_ticket == ticket:
                    del self._pending[number]
        return result

    def read(self, ids: int, count: int, layer: int, staging: int) -> LookupResult:
        """One lookup of `count` i32 ids at an address, of the layer at that position, into the staging of that
        number.
        """
        record = (abi.BatchRecord * 1)(abi.BatchRecord(ids, count, layer))
        return self._wait(self._enqueue(record, 1, staging), None)

    def lookup(self, ids: ArrayLike, layer: int | None = None) -> tuple[Bytes2D, Bytes2D]:
        """Values [n, columns] and scales [n, scales], u8, of the ids of one of the model's layers; None: the first.

        Views, until the next call of this method.  One thread at a time.
        """
        wanted = as_ids(ids)
        if self._own is None:
            self._own = self.staging([self.options.batch_rows_max])
        where = 0 if layer is None else self.position(layer)
        self.wait(self.enqueue([(where, wanted)], self._own))
        return self._own.planes([len(wanted)])[0]

    def position(self, layer: int) -> int:
        """Of one of the model's layers in lookups.  Raises ValueError."""
        if layer not in self.layers:
            raise ValueError(f"layer: {layer} is not one of {list(self.layers)}")
        return self.layers.index(layer)

    def attach(self, block: int, rows_max: int, layer: int, staging: int) -> None:
        """Serve a hand-over block from now on (engram.h, engram_handover).

        block: its address, a multiple of 64; block and staging outlive the client.  A lookup of it that neither
        server nor shard can serve ends the process.  Raises EngramError naming what does not fit.
        """
        place = (block, rows_max, layer, staging)
        with self._handle as handle:
            _check(lambda *room: self._library.engram_client_attach(handle, *place, *room))

    # ---- what it says ----

    def connected(self) -> tuple[bool, str]:
        """Whether the server is open, and over which wire, or why not."""
        with self._handle as handle:
            open_now, text = native.text_of(
                lambda *room: self._library.engram_client_connected(handle, *room)
            )
        return open_now == 1, text

    def shards(self) -> str:
        """How the local shards are read."""
        with self._handle as handle:
            return _check(lambda *room: self._library.engram_client_shards(handle, *room))

    def counters(self) -> dict[str, int]:
        """Totals since the start, by name."""
        values = (ctypes.c_uint64 * abi.CLIENT_COUNTERS)()
        with self._handle as handle:
            self._library.engram_client_counters(handle, values)
        names = [self._library.engram_client_counter_name(index) for index in range(len(values))]
        return {name.decode(): int(value) for name, value in zip(names, values, strict=True) if name}

    def latency(self, outcome: Literal["remote", "local"]) -> Latency:
        """Spans of all lookups so far with that outcome."""
        record = abi.LatencyRecord()
        with self._handle as handle:
            self._library.engram_client_latency(handle, Outcome[outcome.upper()], record)
        floor = self._library.engram_latency_bucket_ns
        buckets = tuple((int(floor(i)), int(count)) for i, count in enumerate(record.buckets) if count)
        return Latency(record.count, record.sum_ns, record.min_ns, record.max_ns, buckets)

    def statistics_line(self) -> str:
        """One line for a log."""
        return client_results.statistics_line(self.counters(), self.latency("remote"), self.connected()[1])

    # ---- end ----

    def close(self) -> None:
        """Open lookups end from the local shards, calls of other threads end, then the connection does and memory is
        given back.  Twice is harmless.
        """
        if not self._handle.close():
            return
        self._pending.clear()
        self._memories.clear()
        self._own = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pending", None) is not None:
            self.close()

    def _enqueue(self, records: Any, count: int, staging: int) -> int:
        ticket = ctypes.c_uint64()
        order = (records, count, staging, ticket)
        with self._handle as handle:
            _check(lambda *room: self._library.engram_client_enqueue(handle, *order, *room))
        return ticket.value

    def _wait(self, ticket: int, deadline_ns: int | None) -> LookupResult:
        record = abi.ResultRecord()
        while True:
            until = time.monotonic_ns() + SLICE_NS
            last = deadline_ns is not None and deadline_ns <= until
            order = (ticket, deadline_ns if last else until, record)
            with self._handle as handle:
                call = functools.partial(self._library.engram_client_wait, handle, *order)
                status, text = native.text_of(call)
            if status != Status.DEADLINE or last:
                break
        _raise_for(status, text)
        reason = self._library.engram_reason_name(record.reason).decode()
        outcome: Literal["remote", "local"] = "remote" if record.outcome == Outcome.REMOTE else "local"
        return LookupResult(outcome, reason, record.rows, record.out_of_shard, record.elapsed_ns)


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """New zeroed memory at a multiple of 64 bytes."""
    whole = np.zeros(size + ALIGNMENT, np.uint8)
    at = -whole.ctypes.data % ALIGNMENT
    return whole[at : at + size]


def _check(function: Any) -> str:
    status, text = native.text_of(function)
    _raise_for(status, text)
    return text


def _raise_for(status: int, text: str) -> None:
    if status != Status.OK:
        raise _CLASSES.get(status, EngramError)(status, text)
