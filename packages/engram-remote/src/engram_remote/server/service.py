"""The table service of libengram: options, tables, listeners, and a run that blocks one thread."""

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ofl import arguments
from ofl.abi import Transport
from ofl.endpoint import Endpoint, parse_endpoint

from engram_remote import abi, native
from engram_remote.server.load import LoadedTable
from engram_remote.tables.manifest import Manifest


@dataclass(frozen=True)
class ServerLimits:
    """Where a server draws its limits.

    batch_rows_max: rows of one LOOKUP, over its layers.  calls_max: unanswered LOOKUPs of one connection.
    reply_buffers: registered memory of one batch each, shared by all connections.  spin_ns: how long threads look for
    work before they sleep.
    """

    gather_threads: int = 4
    connections_max: int = 64
    batch_rows_max: int = 131072
    calls_max: int = 16
    reply_buffers: int = 8
    spin_ns: int = 50_000

    def buffer_bytes(self, columns: int, scales: int, layers: int) -> int:
        """Bytes of all reply buffers together, with the padding of `layers` parts each."""
        return self.reply_buffers * (64 + self.batch_rows_max * (columns + scales) + 128 * min(layers, 64))


class TableServer:
    """A server that has tables and listeners added, then runs once.

    `run` blocks a thread of its own; `stop` and `counters` may be called by any, also after `close`: they do nothing
    then.  After fork() the child must not use it.  Raises EngramError (InvalidError naming the option at fault),
    ValueError for texts that have other characters than they may.
    """

    def __init__(
        self,
        manifest: Manifest,
        limits: ServerLimits,
        *,
        key_file: Path | None = None,
        allowed: Sequence[str] = (),
        allow_any: bool = False,
    ) -> None:
        self._library = native.loaded()
        self._handle = ctypes.c_void_p()
        # Of the handle in `stop`, `counters` and `close`.  A signal handler may stop while its own thread has it.
        self._using = threading.RLock()
        self._ranks = manifest.ranks
        names = (ctypes.c_char_p * len(allowed))(*(arguments.text("allowed", one) for one in allowed))
        options = abi.ServerOptions(
            key_file=arguments.key_path(key_file),
            allowed=names,
            allowed_count=len(allowed),
            allow_any=allow_any,
            identity=(ctypes.c_uint8 * 32)(*bytes.fromhex(manifest.identity)),
            columns=manifest.columns,
            scales=manifest.scales,
            gather_threads=limits.gather_threads,
            connections_max=limits.connections_max,
            batch_rows_max=limits.batch_rows_max,
            calls_max=limits.calls_max,
            reply_buffers=limits.reply_buffers,
            spin_ns=limits.spin_ns,
        )
        native.check(
            lambda *room: self._library.engram_server_create(options, ctypes.byref(self._handle), *room)
        )

    def add_table(self, table: LoadedTable) -> None:
        """Serve a table; its memory must stay until `close`."""
        record = abi.TableRecord(
            rows=table.rows,
            row_start=table.shard.row_start,
            row_end=table.shard.row_end,
            layer=table.shard.layer,
            rank=table.shard.rank,
            ranks=self._ranks,
        )
        native.check(lambda *room: self._library.engram_server_add_table(self._handle, record, *room))

    def listen(self, endpoint: str) -> str:
        """Listen there; the endpoint with the port that was bound.  Raises EndpointError too."""
        parsed = parse_endpoint(endpoint)
        transport, port = Transport.of(parsed.scheme), ctypes.c_uint16()
        where = (transport, parsed.host.encode(), parsed.port, ctypes.byref(port))
        native.check(lambda *room: self._library.engram_server_listen(self._handle, *where, *room))
        return str(Endpoint(parsed.scheme, parsed.host, port.value))

    def prepare(self) -> None:
        """Make and register reply buffers, start the gather threads."""
        native.check(lambda *room: self._library.engram_server_prepare(self._handle, *room))

    def run(self) -> None:
        """Serve until `stop`; lookups under way are answered first."""
        native.check(lambda *room: self._library.engram_server_run(self._handle, *room))

    def stop(self) -> None:
        """End `run`; any thread."""
        with self._using:
            if self._handle:
                self._library.engram_server_stop(self._handle)

    def counters(self) -> dict[str, int]:
        """Totals since the start, by name; nothing after `close`."""
        values = (ctypes.c_uint64 * abi.SERVER_COUNTERS)()
        with self._using:
            if not self._handle:
                return {}
            self._library.engram_server_counters(self._handle, values)
        named = ((self._library.engram_server_counter_name(at), value) for at, value in enumerate(values))
        return {name.decode(): value for name, value in named if name is not None}

    def close(self) -> None:
        """Free the server; `run` must have returned.  Twice is harmless."""
        with self._using:
            handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._library.engram_server_free(handle)

    def __enter__(self) -> "TableServer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
