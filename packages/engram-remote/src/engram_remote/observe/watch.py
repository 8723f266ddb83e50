"""One rank's reader of table rows: where it stands with its server, and what each lookup gave.

Owns the count of lookups.  Must never raise into a lookup on its own account: what fails in here is counted in the
rank's file, which then is no evidence.  Must never write to a staging.  Any thread may use the reader.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from ofl.contract.observation_v1 import NO_TAG, Blind, Record, TableOpened, TableRead

from engram_remote.client import Client, Staging
from engram_remote.client_results import LookupDeadlineError, LookupResult
from engram_remote.observe.staging import StagingBytes, replied
from engram_remote.observe.standing import Standing, standing

ID_BYTES = 4
REMOTE, FAILED = "remote", "failed"
Found = TypeVar("Found")


class Sink(Protocol):
    """Where records go: `ofl.observation_file.Writer`, or a list of a test's."""

    def write(self, record: Record) -> None:
        """One more."""

    def defect(self, error: Exception) -> None:
        """A hook failed."""


@dataclass(frozen=True)
class _Part:
    """One layer's ids of a lookup, i32 each.  layer: its position in the reader's layers."""

    layer: int
    ids: bytes

    @property
    def count(self) -> int:
        return len(self.ids) // ID_BYTES


@dataclass(frozen=True)
class _Begun:
    """A lookup that has begun.  head: of its staging before it.  requests, step: of the engine then."""

    number: int
    step: int
    requests: tuple[str, ...]
    parts: tuple[_Part, ...]
    staging: StagingBytes
    head: bytes


class TableWatch:
    """The hook on one client.  step: of the last `begin_step`, 0 before the first.

    It is put on the object: whoever has the client goes on calling that.
    """

    def __init__(self, client: Client, sink: Sink, blind: Blind) -> None:
        self._client, self._sink, self._blind = client, sink, blind
        self._stagings: dict[int, StagingBytes] = {}
        self._open: dict[int, _Begun] = {}
        self._lock = threading.Lock()
        self._lookups, self.step = 0, 0
        self._requests: tuple[str, ...] = ()
        self._said: Standing | None = None
        self._safely(self._say_standing)
        self._hook()

    def begin_step(self, requests: Sequence[str]) -> None:
        """The engine begins a step.  requests: as the harness calls them, in batch order."""
        self.step += 1
        self._requests = tuple(requests)

    # --- the hooks ---

    def _hook(self) -> None:
        client: Any = self._client
        add, enqueue, wait, read = client.add_staging, client.enqueue, client.wait, client.read

        def observed_add(address: int, size: int) -> int:
            number: int = add(address, size)
            self._stagings[number] = StagingBytes(address, size)
            return number

        def observed_enqueue(batches: Sequence[tuple[int, ArrayLike]], staging: Staging) -> int:
            begun = self._safely(lambda: self._begin(_parts(batches), staging.number))
            try:
                ticket: int = enqueue(batches, staging)
            except Exception:
                self._safely(lambda: self._record(begun, FAILED, ""))
                raise
            if begun is not None:
                self._open[ticket] = begun
            return ticket

        def observed_wait(ticket: int, deadline_ns: int | None = None) -> LookupResult:
            return self._ended(ticket, lambda: wait(ticket, deadline_ns))

        def observed_read(ids: int, count: int, layer: int, staging: int) -> LookupResult:
            part = _Part(layer, ctypes.string_at(ids, count * ID_BYTES))
            begun = self._safely(lambda: self._begin((part,), staging))
            return self._recorded(begun, lambda: read(ids, count, layer, staging))

        client.add_staging, client.enqueue = observed_add, observed_enqueue
        client.wait, client.read = observed_wait, observed_read

    def _ended(self, ticket: int, wait: Callable[[], LookupResult]) -> LookupResult:
        begun = self._open.pop(ticket, None)
        try:
            return self._recorded(begun, wait)
        except LookupDeadlineError:
            if begun is not None:  # it goes on, and can be waited for again
                self._open[ticket] = begun
            raise

    def _recorded(self, begun: _Begun | None, act: Callable[[], LookupResult]) -> LookupResult:
        try:
            result = act()
        except LookupDeadlineError:
            raise
        except Exception:
            self._safely(lambda: self._record(begun, FAILED, ""))
            raise
        reason = "" if result.outcome == REMOTE else result.reason
        self._safely(lambda: self._record(begun, result.outcome, reason))
        return result

    def _safely(self, act: Callable[[], Found]) -> Found | None:
        try:
            with self._lock:
                return act()
        except Exception as error:
            # Not narrower: whatever is wrong with a hook, the engine goes on, and its file is no evidence.
            self._sink.defect(error)
            return None

    # --- records ---

    def _begin(self, parts: tuple[_Part, ...], staging: int) -> _Begun:
        self._say_standing()
        self._lookups += 1
        memory = self._stagings[staging]
        return _Begun(self._lookups, self.step, self._requests, parts, memory, memory.head())

    def _record(self, begun: _Begun | None, outcome: str, reason: str) -> None:
        if begun is None:
            raise LookupError("a lookup ended whose beginning was not seen")
        manifest = self._client.manifest
        counts = [part.count for part in begun.parts]
        came = replied(begun.head, begun.staging.head(), sum(counts))
        planes = begun.staging.planes(counts, manifest.columns, manifest.scales)
        for part, rows in zip(begun.parts, planes, strict=True):
            record = TableRead(
                step=begun.step,
                requests=begun.requests,
                lookup=begun.number,
                layer=self._client.layers[part.layer],
                n_rows=part.count,
                out_of_shard=self._out_of_shard(part),
                ids=self._blind.tag("table_ids", part.ids),
                rows=NO_TAG if outcome == FAILED else self._blind.tag("table_rows", rows),
                outcome=outcome,
                reason=reason,
                replied=came,
            )
            self._sink.write(record)
        self._say_standing()

    def _out_of_shard(self, part: _Part) -> int:
        """By the manifest, not by what the client counted."""
        shard = self._client.manifest.shard(self._client.layers[part.layer], self._client.options.rank)
        ids = np.frombuffer(part.ids, "<i4")
        return int(np.count_nonzero((ids < shard.row_start) | (ids >= shard.row_end)))

    def _say_standing(self) -> None:
        client = self._client
        now = standing(*client.connected(), client.manifest.identity)
        if now == self._said:
            return
        self._said = now
        options, manifest = client.options, client.manifest
        record = TableOpened(
            step=self.step,
            rank=options.rank,
            ranks=manifest.ranks,
            layers=len(client.layers),
            identity=manifest.identity,
            source="local" if options.endpoint is None else "remote",
            status=now.status,
            refused=now.refused,
            offered=now.offered,
        )
        self._sink.write(record)


def _parts(batches: Sequence[tuple[int, ArrayLike]]) -> tuple[_Part, ...]:
    """As the client reads them: whole numbers that fit i32, or its own call raises."""
    return tuple(_Part(layer, np.asarray(ids).astype("<i4").tobytes()) for layer, ids in batches)
