"""The demo's story of the tables: served by another process, every row compared, the server killed, lookups timed.

Owns the order of things and what is claimed.  What rows must be is computed from the generator of the synthetic tables,
never read from their files.
"""

import json
import os
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from engram_remote.client import Client, ClientOptions
from engram_remote.tables.manifest import Manifest, read_manifest
from engram_remote.tables.synthetic import synthetic_rows
from rich.console import Console

from demo.options import Options
from demo.processes import DemoError, Process, Server, last_line, tool
from demo.summary import Summary, write

LAYERS = (1, 14)
RANKS = 2
SEED = 7
CHECK_ROWS = 300_000
"""Random rows of each rank over each way, besides the corner cases; `engram-remote check` takes 800,000 by default."""
COMMAND_S = 900.0
START_S = 300.0
DRILL_ROWS = 288
DRILL_LOOKUPS = 40
"""Before the kill, while the server is away, and after it is back."""
BACK_S = 60.0
MS = 1_000_000
LOSS_MS = "5000"
"""On a busy machine a process may wait for its turn; a killed one is seen at once, by its closed socket."""


class TableServer(Server):
    """`engram-remote serve` as its own process, over TCP and shared memory; the port of the first start is kept."""

    def __init__(self, tables: Path, folder: Path) -> None:
        super().__init__("the table server", folder, "tables", START_S)
        self._tables = tables
        self._shm = f"shm://engram-demo-{os.getpid()}-{secrets.token_hex(4)}"
        self._tcp = "tcp://127.0.0.1:0"
        self.endpoints: tuple[str, ...] = ()

    def start(self) -> None:
        """Start it and wait until it serves.  Raises DemoError."""
        command = [tool("engram-remote"), "serve", str(self._tables)]
        self.launch([*command, "--listen", self._tcp, "--listen", self._shm], dict(os.environ))
        self.wait_ready()
        self.endpoints = tuple(json.loads(self.ready_file.read_text())["endpoints"])
        self._tcp = next(endpoint for endpoint in self.endpoints if endpoint.startswith("tcp:"))

    @property
    def tcp(self) -> str:
        """Where it listens, from the first start on."""
        return self._tcp


@dataclass
class Drill:
    """Lookups before, during and after the server's absence.  outcomes: by phase and outcome or reason."""

    rows_checked: int = 0
    rows_wrong: int = 0
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def completed(self) -> bool:
        """Remote first, local while the server was away, remote again."""
        first, away, back = (self.outcomes.get(phase, {}) for phase in ("before", "away", "back"))
        return set(first) == {"remote"} and bool(set(away) - {"remote"}) and set(back) == {"remote"}


def tell(options: Options, folder: Path, console: Console) -> int:
    """The whole story; the exit status."""
    tables = folder / "tables"
    console.print(
        f"[bold]Synthetic tables[/]: layers {LAYERS}, {options.table_rows:,} rows each, {RANKS} ranks"
    )
    rows = str(options.table_rows)
    words = ["build", "--synthetic", "--rows", rows, "--ranks", str(RANKS), "--seed", str(SEED)]
    _command([*words, "--layers", ",".join(map(str, LAYERS)), str(tables)], folder, "build")
    manifest = read_manifest(tables)
    server = TableServer(tables, folder)
    try:
        begun = time.monotonic()
        server.start()
        loaded_s = time.monotonic() - begun
        console.print(
            f"[bold]Served[/] from another process after {loaded_s:.1f} s, verified while they were loaded: "
            + ", ".join(server.endpoints)
        )
        checked = _check(tables, server.endpoints, folder, console)
        drill = _drill(server, tables, manifest)
        _show_drill(drill, console)
        benched = _bench(tables, server.endpoints, folder, console)
    finally:
        server.end()
    summary = conclude(manifest, checked, drill, benched, loaded_s)
    wrong, total = summary.figures["rows_wrong"], summary.figures["rows_checked"]
    console.print(f"[bold]{total:,} rows checked, {wrong:,} wrong[/]")
    if options.json_file is not None:
        write(summary, options.json_file)
    return 0 if summary.passed else 1


def conclude(
    manifest: Manifest, checked: dict[str, int], drill: Drill, benched: dict[str, Any], loaded_s: float
) -> Summary:
    """The figures, and whether the demo showed what it claims: no wrong row, every refusal, a drill that completed."""
    figures: dict[str, Any] = {
        "identity": manifest.identity,
        "rows_checked": checked["rows_checked"] + drill.rows_checked,
        "rows_wrong": checked["rows_wrong"] + drill.rows_wrong,
        "refusals_wrong": checked["refusals_wrong"],
        "load_s": round(loaded_s, 3),
        "drill": {
            "completed": drill.completed,
            "rows_checked": drill.rows_checked,
            "outcomes": drill.outcomes,
        },
        "latencies": benched,
    }
    passed = not figures["rows_wrong"] and not checked["refusals_wrong"] and drill.completed
    return Summary(figures, [], passed and figures["rows_checked"] > 0)


def _drill(server: TableServer, tables: Path, manifest: Manifest) -> Drill:
    drill = Drill()
    options = ClientOptions(
        tables,
        rank=0,
        endpoint=server.tcp,
        required=True,
        batch_rows_max=DRILL_ROWS * len(LAYERS),
        retry_ns=100 * MS,
    )
    client = Client(options, manifest)
    try:
        lookups = _Lookups(client, manifest)
        lookups.some(drill, "before")
        server.kill()
        lookups.some(drill, "away")
        server.start()
        deadline = time.monotonic() + BACK_S
        while not client.connected()[0]:
            if time.monotonic() > deadline:
                raise DemoError(
                    f"the client did not come back within {BACK_S:.0f} s: {client.connected()[1]}"
                )
            lookups.one(drill, "returning")
        lookups.some(drill, "back")
    finally:
        client.close()
    return drill


class _Lookups:
    """Lookups in both layers at once, compared with the generator."""

    def __init__(self, client: Client, manifest: Manifest) -> None:
        self._client, self._manifest = client, manifest
        self._counts = [DRILL_ROWS] * len(LAYERS)
        self._staging = client.staging(self._counts)
        self._random = np.random.default_rng(SEED)

    def some(self, drill: Drill, phase: str) -> None:
        for _ in range(DRILL_LOOKUPS):
            self.one(drill, phase)

    def one(self, drill: Drill, phase: str) -> None:
        shards = [self._manifest.shard(layer, 0) for layer in LAYERS]
        ids = [self._random.integers(shard.row_start, shard.row_end, DRILL_ROWS) for shard in shards]
        self._staging.memory[:] = 0xA5
        result = self._client.wait(self._client.enqueue(list(enumerate(ids)), self._staging))
        found = drill.outcomes.setdefault(phase, {})
        named = result.outcome if result.outcome == "remote" else f"local ({result.reason})"
        found[named] = found.get(named, 0) + 1
        columns, scales = self._manifest.columns, self._manifest.scales
        planes = self._staging.planes(self._counts)
        for layer, wanted, (values, exponents) in zip(LAYERS, ids, planes, strict=True):
            expected = synthetic_rows(SEED, layer, wanted, columns, scales)
            wrong = (values != expected[:, :columns]).any(1) | (exponents != expected[:, columns:]).any(1)
            drill.rows_checked += len(wanted)
            drill.rows_wrong += int(wrong.sum())


def _show_drill(drill: Drill, console: Console) -> None:
    console.print("[bold]Drill[/]: the server is killed in the middle and started again")
    for phase, outcomes in drill.outcomes.items():
        told = ", ".join(f"{count} {name}" for name, count in Counter(outcomes).most_common())
        console.print(f"  {phase}: {told}")
    console.print(f"  {drill.rows_checked:,} rows compared with the generator, {drill.rows_wrong} wrong")


def _check(tables: Path, endpoints: tuple[str, ...], folder: Path, console: Console) -> dict[str, int]:
    console.print("[bold]Exactness[/]: every endpoint and the local shards against the generator")
    found = {"rows_checked": 0, "rows_wrong": 0, "refusals_wrong": 0}
    for rank in range(RANKS):
        result = folder / f"check-{rank}.json"
        words = ["check", str(tables), *_each(endpoints), "--rank", str(rank), "--rows", str(CHECK_ROWS)]
        _command([*words, "--json", str(result)], folder, f"check-{rank}")
        said = json.loads(result.read_text())
        for way in said["ways"]:
            told = f"{way['rows']:,} rows, {way['rows_wrong']} wrong"
            console.print(f"  rank {rank}, {way['way']} ({way['wire']}): {told}", soft_wrap=True)
        found["rows_checked"] += said["rows_checked"]
        found["rows_wrong"] += said["rows_wrong"]
        found["refusals_wrong"] += sum(not refusal["passed"] for refusal in said["refusals"])
    console.print(f"  refusals that were not as they must be: {found['refusals_wrong']}")
    return found


def _bench(tables: Path, endpoints: tuple[str, ...], folder: Path, console: Console) -> dict[str, Any]:
    console.print("[bold]Latencies[/]")
    result = folder / "bench.json"
    _command(["bench", str(tables), *_each(endpoints), "--json", str(result)], folder, "bench", console)
    return dict(json.loads(result.read_text()))


def _each(endpoints: tuple[str, ...]) -> list[str]:
    return [word for endpoint in endpoints for word in ("--endpoint", endpoint)]


def _command(words: list[str], folder: Path, name: str, console: Console | None = None) -> None:
    """Run `engram-remote` with its output in a log, which a console then shows.  Raises DemoError unless it exits 0."""
    log = folder / f"{name}.log"
    env = os.environ | ({"COLUMNS": str(console.width)} if console is not None else {})
    process = Process(f"engram-remote {name}", [tool("engram-remote"), *words], log, env)
    try:
        status = process.wait(COMMAND_S)
    finally:
        process.end()
    if console is not None:
        console.print(log.read_text(errors="replace"), markup=False, highlight=False, soft_wrap=True)
    if status:
        raise DemoError(f"engram-remote {name} ended with status {status}: {last_line(log)}")
