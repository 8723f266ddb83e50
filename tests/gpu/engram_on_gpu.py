"""The remote tables under stock's lookup kernel on a GPU: one command, one JSON result.

    python3 tests/gpu/engram_on_gpu.py --pack FOLDER --json FILE [--device cpu]

FOLDER is what `engram_pack.py` made: stock's sources, libraries and the wheels that the machine may lack.  Runs with
torch and Triton alone; --device cpu rehearses it in Triton's interpreter, with smaller tables and no graphs, and says
so. Ends with 1 where a check failed.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
HELPERS = ROOT / "packages" / "engram-remote" / "tests" / "seam"
PARTS = ("packages/engram-remote/src", "packages/ofl-transport/src")


def prepare(pack: Path, device: str) -> None:
    """Make importable what the checks need, here and in the server's process."""
    folders = [str(ROOT / part) for part in PARTS] + [str(pack / "site")]
    sys.path[:0] = [str(HELPERS), str(HERE), *folders]
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    os.environ.setdefault("OFL_LIBRARY", str(pack / "lib" / "libofl.so"))
    os.environ.setdefault("ENGRAM_LIBRARY", str(pack / "lib" / "libengram.so"))
    os.environ.setdefault("OFL_LOSS_MS", "2000")
    os.environ["VLLM_RELEASES"] = os.environ["VLLM_RELEASES_ENGRAM"] = str(pack / "releases")
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"


@dataclass(frozen=True)
class Scale:
    """How much is done.  tokens: captured sizes, most used first.  timed: (tokens, lookups) of the latencies."""

    model: dict[str, int]
    tokens: tuple[int, ...]
    replays: int
    timed: tuple[tuple[int, int], ...]


FULL = Scale(
    {"heads": 8, "ngrams": 4, "columns": 256, "smallest": 20_000},
    (24, 1, 4096), 1000, ((24, 500), (4096, 100)),
)  # fmt: skip
REHEARSAL = Scale(
    {"heads": 4, "ngrams": 3, "columns": 64, "smallest": 100},
    (3, 1, 12), 30, ((3, 5), (12, 3)),
)  # fmt: skip


class Checks:
    """Runs them one after another and keeps what each said.  A check that raises has failed; the others still run.

    wanted: part of the names of those to run; empty for all.
    """

    def __init__(self, wanted: str = "") -> None:
        self._wanted = wanted
        self.results: list[dict[str, Any]] = []

    def run(self, name: str, check: Callable[[], Any]) -> None:
        """check: returns details, or raises NotRun."""
        if self._wanted not in name:
            return
        began, verdict, detail = time.monotonic(), "PASS", None
        try:
            detail = check()
        except NotRunError as reason:
            verdict, detail = "NOT RUN", str(reason)
        except Exception as error:
            verdict, detail = "FAIL", f"{type(error).__name__}: {error}"
            traceback.print_exc()
        seconds = round(time.monotonic() - began, 3)
        self.results.append({"check": name, "verdict": verdict, "seconds": seconds, "detail": detail})
        print(f"{verdict:8} {seconds:8.1f} s  {name}  {detail if verdict != 'PASS' else ''}", flush=True)


class NotRunError(Exception):
    """The check cannot be made here; the text is the reason."""


class Bench:
    """One model's tables on disk, and its ranks one after another."""

    def __init__(self, folder: Path, release: Path, version: str, scale: Scale, device: Any) -> None:
        from engram_seam_stock import stock_module
        from engram_seam_tables import model_config, sources, write_tables

        self.scale, self.device, self.folder = scale, device, folder / "tables"
        self.config = model_config(**scale.model)
        self.sources = sources(self.config)
        write_tables(self.folder, self.config, self.sources, 2)
        self.stock: ModuleType = stock_module(release, folder, f"stock_{version.replace('.', '_')}")

    def pair(self, rank: int) -> Any:
        from engram_seam_pairs import Pairs

        return Pairs(
            self.stock, self.config, self.sources, self.folder, rank, 2,
            tokens_max=max(self.scale.tokens), device=self.device,
        )  # fmt: skip

    def exchange(self, device: Any) -> Any:
        from engram_remote.vllm_seam.stream import choose_exchange
        from engram_seam_readers import HostExchange

        return choose_exchange(device) or HostExchange()

    @contextmanager
    def engine(self, rank: int, listen: str = "tcp://127.0.0.1:0", **more: str) -> Iterator[tuple[Any, Any]]:
        """A server process and an engine's rank on it."""
        from engram_seam_engine import Engine
        from engram_seam_server import ServerProcess

        server = ServerProcess(self.folder, listen)
        server.start()
        try:
            engine = Engine(self.pair(rank), server.endpoint, self.exchange, **more)
            try:
                yield engine, server
            finally:
                engine.tables.close()
        finally:
            server.stop()

    # ---- checks ----

    def eager(self, rank: int) -> dict[str, int]:
        """Every size, both layers, bf16 and packed where this stock packs, and an empty batch."""
        with self.engine(rank) as (engine, _):
            before = engine.counters()
            for layer, (_, ours) in engine.layers.items():
                for tokens in self.scale.tokens:
                    engine.same(layer, tokens)
                    if hasattr(ours, "_packed"):  # from 0.32 on
                        engine.same(layer, tokens, packed=True)
                ours.lookup(engine.pair.ids(layer, 0), engine.pair.out(ours, 0))
            rose = engine.rose(before)
            assert rose["lookups_local"] == 0, rose
            return rose

    def replayed(self, rank: int) -> dict[str, int]:
        """Replays with one late reply, then the server killed, restarted, frozen for long and thawed."""
        from engram_gpu_graphs import replays

        count = self.scale.replays
        with self.engine(rank, TIMEOUT_MS="200") as (engine, server):
            marks: dict[str, dict[str, int]] = {}

            def back(act: Callable[[], None], mark: str = "") -> None:
                act()
                engine.reconnected()
                marks[mark] = engine.counters()

            at = {
                count * 2 // 10: server.freeze,
                count * 2 // 10 + 1: lambda: back(server.thaw, "late"),
                count * 4 // 10: server.kill,
                count * 5 // 10: lambda: back(server.start, "killed"),
                count * 7 // 10: server.freeze,
                count * 8 // 10: lambda: back(server.thaw, "frozen"),
            }
            rose = replays(engine, self.scale.tokens, count, at)
            late = marks["late"]["fallbacks_late"]
            assert late == 1, f"{late} late replies by the first thaw"
            assert marks["frozen"]["fallbacks_late"] == 2, marks["frozen"]
            assert marks["killed"]["lookups_local"] > marks["late"]["lookups_local"], "the kill left no trace"
            after = engine.rose(marks["frozen"])
            assert after["lookups_local"] == 0, after
            assert rose["lookups_failed"] == 0, rose
            assert rose["lookups_remote"] > count, rose
            return rose

    def spinning(self) -> str:
        """The way for devices without stream memory operations, eagerly and captured."""
        from engram_gpu_graphs import replays
        from engram_remote.vllm_seam.stream import SpinKernel

        if self.device.type != "cuda":
            raise NotRunError("there is no GPU to spin on")
        self.exchange = lambda device: SpinKernel()  # type: ignore[method-assign]
        try:
            with self.engine(0) as (engine, _):
                rose = replays(engine, self.scale.tokens, self.scale.replays // 10, {})
                assert rose["lookups_local"] == 0, rose
        finally:
            del self.exchange  # type: ignore[method-assign]
        return SpinKernel.name

    def parked(self) -> str:
        """While a lookup waits for a frozen server, the host and another stream go on."""
        import torch
        from engram_gpu_graphs import Captured

        if self.device.type != "cuda":
            raise NotRunError("there is no stream to park")
        with self.engine(0, TIMEOUT_MS="1000") as (engine, server):
            captured = Captured(engine, self.scale.tokens[0], prefetch=True)
            other, numbers = torch.cuda.Stream(), torch.arange(1000, device=self.device)
            # Its kernels are loaded before: the driver loads none while a stream is parked.
            assert int(numbers.sum()) == 499_500
            server.freeze()
            began = time.monotonic()
            captured.submit(seed=1)
            with torch.cuda.stream(other):
                total = numbers.sum()
            other.synchronize()
            free = time.monotonic() - began
            assert int(total) == 499_500
            captured.check()
            whole = time.monotonic() - began
            server.thaw()
            assert free < 0.5 < 1.0 <= whole, (free, whole)
        return f"another stream was through after {free * 1e3:.1f} ms, the lookup after {whole * 1e3:.1f} ms"

    def latencies(self) -> dict[str, Any]:
        """Of layer 14 on rank 0, by where rows come from and by rows of a lookup."""
        from engram_gpu_times import spans_us

        found: dict[str, Any] = {}

        def measure(name: str, pair: Any, embedding: Any) -> None:
            for tokens, count in self.scale.timed:
                rows = tokens * embedding.part_n_hash_cols
                found.setdefault(str(rows), {})[name] = spans_us(pair, embedding, 14, tokens, count)

        wires = {"shm": f"shm://engram-gpu-{os.getpid()}", "tcp": "tcp://127.0.0.1:0"}
        for wire, listen in wires.items():
            with self.engine(0, listen) as (engine, _):
                measure(f"remote over {wire}", engine.pair, engine.layers[14][1])
        shards: dict[str, dict[str, str]] = {
            "past the page cache": {},
            "in the page cache": {"BUFFERED": "1"},
        }
        for way, more in shards.items():
            with self.engine(0, **more) as (engine, server):
                server.kill()
                measure(f"local, {way}", engine.pair, engine.layers[14][1])
        pair = self.pair(0)
        measure("stock, table on the device", pair, pair.stocks(14))
        if self.device.type == "cuda":
            measure("stock, table in pinned memory", pair, pair.stocks_pinned(14))
        return found


def whole_module() -> str:
    """Stock's module out of a whole vLLM, where this machine has one that the seam knows."""
    try:
        import vllm

        module = importlib.import_module("vllm.models.deepseek_v41.common.engram")
    except Exception as error:
        raise NotRunError(f"vLLM does not import here: {type(error).__name__}: {error}") from error
    from engram_remote.vllm_seam.versions import check_sources, seam_for

    check_sources(seam_for(vllm.__version__), vllm.__version__)
    return str(module.__file__)


def main() -> int:
    """The command line of the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pack", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default=os.environ.get("GPU_TEST_DEVICE") or "cuda"
    )
    parser.add_argument("--check", default="", metavar="TEXT", help="only checks with this in their name")
    options = parser.parse_args()
    prepare(options.pack.resolve(), options.device)
    import torch
    import triton
    from engram_seam_stock import releases

    rehearsal = options.device == "cpu"
    device = torch.device("cpu") if rehearsal else torch.device("cuda", torch.cuda.current_device())
    checks, latencies, way = Checks(options.check), {}, ""
    checks.run("stock's whole module", whole_module)
    for version, release in releases().items():
        newest = version == max(releases())
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), release, version, REHEARSAL if rehearsal else FULL, device)
            for rank in (0, 1):
                checks.run(f"{version} rank {rank}: eager", lambda bench=bench, rank=rank: bench.eager(rank))
                checks.run(
                    f"{version} rank {rank}: replays", lambda bench=bench, rank=rank: bench.replayed(rank)
                )
            if newest:
                checks.run(f"{version}: a spinning kernel", bench.spinning)
                checks.run(f"{version}: a parked stream", bench.parked)
                checks.run(f"{version}: latencies", lambda bench=bench: latencies.update(bench.latencies()))
                way = bench.exchange(device).name
    verdicts = [one["verdict"] for one in checks.results]
    result = {
        "rehearsal": rehearsal,
        "device": "cpu" if rehearsal else torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "hand_over": way,
        "checks": checks.results,
        "latency_us_by_rows": latencies,
        **{name.lower().replace(" ", "_"): verdicts.count(name) for name in ("PASS", "FAIL", "NOT RUN")},
    }
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in result.items() if key != "checks"}, indent=1))
    return 1 if "FAIL" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
