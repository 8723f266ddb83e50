"""Engines for the GPU suite: how one is started on a GPU, or on the CPU where that is rehearsed, and many at once.

Everything else comes from the engine suite: the process that holds an engine, and the project's own worker.
"""

import os
import shutil
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from time import perf_counter
from typing import Any

from driver import Engine, dspark, engine_environment, two_ranks
from served_worker import ServedWorker
from texts import DEMO_PAIR, prompts

ROOT = Path(__file__).parents[2]
PLUGINS = "vllm.general_plugins"
DRAFTS = 5
CONNECT_S = 30.0
Requests = dict[str, dict[str, Any]]

ENGINE: dict[str, Any] = {
    "max_model_len": 512,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 96,
    "enable_prefix_caching": False,
    "kv_cache_memory_bytes": 64 << 20,
    "seed": 0,
}
ON_GPU: dict[str, Any] = {"gpu_memory_utilization": 0.02, "block_size": 16}
"""Several engines share a GPU."""
GRAPHS: dict[str, Any] = {
    "enforce_eager": False,
    "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
}
"""CUDA graphs without torch.compile, which would only lengthen the start."""


@dataclass(frozen=True)
class Mode:
    """How an engine computes.  name: for the tests' names."""

    name: str
    dtype: str
    graphs: bool

    def arguments(self, device: str) -> dict[str, Any]:
        """Engine arguments on "cuda" or "cpu"."""
        if device == "cpu":
            return {"dtype": self.dtype}
        # FlashAttention has no float32.
        backend = {"attention_backend": "TRITON_ATTN"} if self.dtype == "float32" else {}
        return ON_GPU | {"dtype": self.dtype} | backend | (GRAPHS if self.graphs else {})


EAGER = Mode("float32-eager", "float32", graphs=False)
GRAPHED = Mode("float32-graphs", "float32", graphs=True)
SERVED = Mode("bfloat16-graphs", "bfloat16", graphs=True)


def requests(tokens: int) -> Requests:
    """The demo pair's own prompts: whole, chunked, a late one and a short one."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(DEMO_PAIR / "target" / "tokenizer.json"))
    first, second, third, fourth = (tokenizer.encode(prompt).ids for prompt in prompts())
    chunked = (second + first)[-180:]
    assert len(chunked) > ENGINE["max_num_batched_tokens"]
    return {
        "whole": {"prompt": first[:80], "max_tokens": tokens},
        "chunked": {"prompt": chunked, "max_tokens": tokens - 40},
        "late": {"prompt": third[:64], "max_tokens": tokens - 60, "at_step": 6},
        "short": {"prompt": fourth[:3], "max_tokens": tokens - 20, "at_step": 3},
    }


def environment(device: str, folder: Path, **settings: str) -> dict[str, str]:
    """The environment of an engine process.  settings: of the overlay; folder: for what it needs on its path."""
    made = engine_environment(**settings)
    paths = [*_plugin(folder), *(made["PYTHONPATH"].split(os.pathsep) if "PYTHONPATH" in made else [])]
    made |= {"PYTHONPATH": os.pathsep.join(paths), "VLLM_HOST_IP": "127.0.0.1"}
    if device != "cpu":
        del made["TRITON_INTERPRET"]
        # Another package, and nothing that is under test here.
        made["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    return made


def _plugin(folder: Path) -> list[str]:
    """What of the overlay vLLM's plugin loader must find on the path: nothing where it is installed."""
    if any(found.name == "spark_overlay" for found in entry_points(group=PLUGINS)):
        return []
    project = tomllib.loads((ROOT / "packages/spark-overlay/pyproject.toml").read_text())["project"]
    declared = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    declared.mkdir(parents=True, exist_ok=True)
    (declared / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{name} = {place}\n" for name, place in project["entry-points"][PLUGINS].items()]
    (declared / "entry_points.txt").write_text(f"[{PLUGINS}]\n{''.join(lines)}")
    return [str(folder)]


@dataclass
class Done:
    """A finished run.  seconds: of the whole of it."""

    tokens: dict[str, list[int]]
    steps: int
    seconds: float


def timed_run(engine: Engine, wanted: Requests) -> Done:
    """All steps of a run without pauses."""
    started = perf_counter()
    event = engine.run(wanted)
    seconds = perf_counter() - started
    assert event["event"] == "finished", event
    return Done(event["tokens"], event["steps"], seconds)


@dataclass
class Stage:
    """A drafting engine with a worker of its own."""

    engine: Engine
    worker: ServedWorker
    ranks: int

    def connect(self) -> None:
        """Wait until rank 0 has a session."""
        connected = self.engine.on_ranks("wait_connected", CONNECT_S)
        assert connected == [True] + [None] * (self.ranks - 1), self.engine.said()[-3000:]

    def counters(self) -> dict[str, int]:
        """The overlay's counters now."""
        counters: dict[str, int] = self.engine.stats()["counters"]
        return counters

    def grown(self, before: dict[str, int]) -> dict[str, int]:
        """The counters that are higher than before, and by how much."""
        return {name: value - before[name] for name, value in self.counters().items() if value > before[name]}


@dataclass
class Maker:
    """Starts engines of the demo pair.  device: "cuda" or "cpu"."""

    device: str
    ranks: int
    folder: Path
    stack: ExitStack = field(default_factory=ExitStack)

    def engine(self, name: str, mode: Mode, speculative: Path | None, **settings: str) -> Engine:
        """An engine that is up.  speculative: the drafter's folder."""
        change, more = two_ranks() if self.ranks == 2 else ({}, {})
        folder = self.folder / name
        folder.mkdir()
        engine = Engine(
            folder / "engine.log", environment(self.device, folder / "path", **change, **settings)
        )
        self.stack.enter_context(engine)
        arguments = ENGINE | mode.arguments(self.device) | more
        if speculative is not None:
            backend = {key: arguments[key] for key in ("attention_backend",) if key in arguments}
            arguments["speculative_config"] = dspark(speculative, DRAFTS, **backend)
        found = engine.start(model=str(DEMO_PAIR / "target"), **arguments)
        assert found["event"] == "ready", (found, engine.said()[-6000:])
        return engine

    def stage(self, mode: Mode, policy: str, **settings: str) -> Stage:
        """A drafting engine of a policy, connected to a worker of its own on the same device."""
        folder = self.folder / f"{policy}-{mode.name}-worker"
        folder.mkdir()
        options = ("--device", self.device, "--dtype", mode.dtype)
        worker = ServedWorker(folder, DEMO_PAIR / "drafter", DEMO_PAIR / "target", options)
        self.stack.callback(worker.kill)
        worker.start()
        name, _, use = policy.partition("-")
        given = {"_SHADOW_USE": use} if use else {}
        engine = self.engine(
            f"{policy}-{mode.name}",
            mode,
            self._drafter(folder, weights=name != "capacity"),
            **worker.settings(name, _RETRY_MS="100", _RETRY_MAX_MS="200", **given, **settings),
        )
        made = Stage(engine, worker, self.ranks)
        made.connect()
        return made

    def _drafter(self, folder: Path, *, weights: bool) -> Path:
        """The drafter's folder as the engine's host has it: in capacity without weights."""
        if weights:
            return DEMO_PAIR / "drafter"
        bare = folder / "config-only"
        bare.mkdir()
        shutil.copy(DEMO_PAIR / "drafter" / "config.json", bare)
        return bare


def means(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """Mean of each latency between two looks at the figures."""
    found = {}
    for name, value in after.items():
        if count := value["count"] - before[name]["count"]:
            found[name] = round((value["sum"] - before[name]["sum"]) / count, 1)
    return found
