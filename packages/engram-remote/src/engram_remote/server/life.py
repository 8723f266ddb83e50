"""The life of the server's process: checks, trial of the listeners, load, ready file, signals, drain.

Nothing listens before every table is verified; whatever an operator can get wrong is told before that, as one sentence.
"""

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ofl.endpoint import parse_endpoint
from ofl.files import publish, read_plain

from engram_remote.problem import Problem
from engram_remote.server.load import LoadedTable, LoadStopped, Progress, loaded_tables
from engram_remote.server.metrics import REFUSED, ServerCollector, metrics_server, parse_address
from engram_remote.server.preflight import PreflightError, check_locked, check_memory
from engram_remote.server.service import ServerLimits, TableServer
from engram_remote.server.supervisor import notify
from engram_remote.tables.files import TEXT_BYTES_MAX
from engram_remote.tables.manifest import Manifest, Shard, read_manifest

LOGGER = logging.getLogger("engram_remote")
LOOK_S = 1.0
"""How often the log looks whether requests were refused."""


@dataclass(frozen=True)
class ServeOptions:
    """What `serve` was asked for.

    folder: of shards and manifest.  endpoints: tcp://address:port, rdma://address:port or shm://name.  ranks: whose
    shards; none: all.  key_file, allowed, any_address: who may connect.  threads: that load.  huge: explicit
    huge pages.  full: digest again what is recorded as digested.  metrics: HOST:PORT.
    """

    folder: Path
    endpoints: Sequence[str]
    threads: int
    ranks: Sequence[int] = ()
    limits: ServerLimits = field(default_factory=ServerLimits)
    key_file: Path | None = None
    allowed: Sequence[str] = ()
    any_address: bool = False
    huge: bool = False
    full: bool = False
    metrics: str | None = None
    ready_file: Path | None = None


class Stop:
    """The wish to stop, set by a signal.  wake: ends the service, once there is one."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.wake: Callable[[], None] = lambda: None

    @property
    def asked(self) -> bool:
        return self.signal is not None


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """While open, SIGTERM and SIGINT set stop and wake the service; after a stop they are ignored.

    A supervisor that asks twice must not turn an orderly end into a death by signal on the last metres.
    """

    def note(number: int, _frame: FrameType | None) -> None:
        if not stop.asked:
            notify("STOPPING=1")
        stop.signal = number
        stop.wake()

    old = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, signal.SIG_IGN if stop.asked else handler)


def serve(options: ServeOptions, progress: Callable[[int], AbstractContextManager[Progress]]) -> None:
    """Load, verify and serve until SIGTERM or SIGINT, then answer what is under way and return.

    progress: given all bytes to load, a context whose value is told how many more are done.  Raises Problem,
    TransportError, TableError, OSError.
    """
    manifest = read_manifest(options.folder)
    shards = _shards(manifest, options.ranks)
    _check(options, manifest, shards)
    stop = Stop()
    # From here on a signal ends the process in good order, also while tables are being read.
    with stop_on_signals(stop):
        with _server(options, manifest) as trial:
            _listen(trial, options)
        try:
            _load_and_serve(options, manifest, shards, stop, progress)
        except LoadStopped:
            LOGGER.info("stopped on signal %s before the tables were loaded", stop.signal)


def _load_and_serve(
    options: ServeOptions,
    manifest: Manifest,
    shards: Sequence[Shard],
    stop: Stop,
    progress: Callable[[int], AbstractContextManager[Progress]],
) -> None:
    began, size = time.monotonic(), sum(shard.bytes for shard in shards)
    with ExitStack() as stack:
        with progress(size) as advance:
            loading = loaded_tables(
                options.folder,
                manifest,
                shards,
                threads=options.threads,
                huge=options.huge,
                full=options.full,
                advance=advance,
                stop=lambda: stop.asked,
            )
            tables = stack.enter_context(loading)
        _tell_load(tables, size, time.monotonic() - began)
        _serve(options, manifest, tables, stop, stack)


def _tell_load(tables: Sequence[LoadedTable], size: int, seconds: float) -> None:
    digested = sum(table.digested for table in tables)
    LOGGER.info(
        "loaded %s shards (%.2f GiB) in %.1f s, %.2f GiB/s; %s digested, %s as recorded; the first: %s",
        *(len(tables), size / (1 << 30), seconds, size / (1 << 30) / max(seconds, 1e-9)),
        *(digested, len(tables) - digested, tables[0].memory.text),
    )


def _serve(
    options: ServeOptions, manifest: Manifest, tables: Sequence[LoadedTable], stop: Stop, stack: ExitStack
) -> None:
    server = stack.enter_context(_server(options, manifest))
    for table in tables:
        server.add_table(table)
    bound = _listen(server, options)
    server.prepare()
    metrics = None
    if options.metrics is not None:
        ranks = ",".join(map(str, sorted({table.shard.rank for table in tables})))
        facts = {"identity": manifest.identity, "ranks": ranks}
        collector = ServerCollector(server.counters, facts)
        metrics = stack.enter_context(metrics_server(options.metrics, collector))
    stop.wake = server.stop
    if stop.asked:
        server.stop()
    running = _Running(server)
    stack.callback(running.end)  # whatever happens from here on, the server is freed after it has ended
    if options.ready_file is not None:
        stack.callback(remove_ready_file, options.ready_file)
        write_ready_file(options.ready_file, _ready(manifest, tables, bound, metrics))
    LOGGER.info("identity %s on %s for %s", manifest.identity, ", ".join(bound), _clients(options))
    notify("READY=1")
    running.wait()
    LOGGER.info("stopped on signal %s", stop.signal)


class _Running:
    """The service's thread.  The main one must stay in the interpreter, where signal handlers run."""

    def __init__(self, server: TableServer) -> None:
        self._server = server
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="engram-serve")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._server.run()
        except BaseException as error:  # told to the main thread, which raises it
            self._error = error

    def end(self) -> None:
        """Stop the service, if it runs still, and wait for its end."""
        self._server.stop()
        self._thread.join()

    def wait(self) -> None:
        """Until the service ended; raises what ended it."""
        before = self._server.counters()
        while self._thread.is_alive():
            self._thread.join(LOOK_S)
            before = tell_refusals(before, self._server.counters())
        if self._error is not None:
            raise self._error


def tell_refusals(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """Log how many requests were refused since, by status, in one line however many; returns now."""
    more = {
        name.removeprefix(REFUSED): value - before[name] for name, value in now.items() if REFUSED in name
    }
    if said := ", ".join(f"{count} {name}" for name, count in more.items() if count):
        LOGGER.warning("requests refused: %s", said)
    return now


def write_ready_file(path: Path, record: dict[str, object]) -> None:
    """Write the record so that a reader sees all of it or nothing."""
    publish(path, json.dumps(record, indent=1).encode() + b"\n", synced=True)


def remove_ready_file(path: Path) -> None:
    """Take the record away, unless another server has written its own since."""
    try:
        if json.loads(read_plain(path, TEXT_BYTES_MAX)).get("pid") == os.getpid():
            path.unlink()
    except (OSError, ValueError, RecursionError, AttributeError):
        return


def _ready(
    manifest: Manifest, tables: Sequence[LoadedTable], bound: Sequence[str], metrics: str | None
) -> dict[str, object]:
    served = [{"layer": table.shard.layer, "rank": table.shard.rank} for table in tables]
    return {
        "pid": os.getpid(),
        "endpoints": list(bound),
        "identity": manifest.identity,
        "tables": served,
        "metrics": metrics,
    }


def _shards(manifest: Manifest, ranks: Sequence[int]) -> list[Shard]:
    for rank in ranks:
        if not 0 <= rank < manifest.ranks:
            raise Problem(f"--rank: {rank} is not one of the manifest's {manifest.ranks}")
    return [shard for shard in manifest.shards if not ranks or shard.rank in ranks]


def _check(options: ServeOptions, manifest: Manifest, shards: Sequence[Shard]) -> None:
    schemes = {parse_endpoint(endpoint).scheme for endpoint in options.endpoints}
    if options.allowed and schemes == {"shm"}:
        raise Problem("--allow: clients over shm:// have no address; those of this user and root are let in")
    if options.ready_file is not None and not options.ready_file.absolute().parent.is_dir():
        raise Problem(f"--ready-file {options.ready_file}: its folder does not exist")
    if options.metrics is not None:
        with metrics_server(options.metrics, ServerCollector(dict, {})):
            parse_address(options.metrics)
    buffers = options.limits.buffer_bytes(manifest.columns, manifest.scales, len(manifest.layers))
    try:
        check_memory(sum(shard.bytes for shard in shards), buffers, huge=options.huge)
        if "rdma" in schemes:
            check_locked(buffers)
    except PreflightError as error:
        raise Problem(str(error)) from error


def _server(options: ServeOptions, manifest: Manifest) -> TableServer:
    for one in options.allowed:
        if not one.isascii():
            raise Problem(f"--allow: {one!r} is no address and no prefix of one")
    return TableServer(
        manifest,
        options.limits,
        key_file=options.key_file,
        allowed=options.allowed,
        allow_any=options.any_address,
    )


def _listen(server: TableServer, options: ServeOptions) -> list[str]:
    return [server.listen(endpoint) for endpoint in options.endpoints]


def _clients(options: ServeOptions) -> str:
    """Who may connect, for the log."""
    who = f"clients that hold the key of {options.key_file}" if options.key_file else "clients without a key"
    return f"{who}, from {', '.join(options.allowed)}" if options.allowed else who
