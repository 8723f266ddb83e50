"""Measures engine steps of Qwen3-8B's shape: without speculation, with vLLM's own drafting, and with remote rounds
against a worker that drafts nothing real and at once (`x86-worker mock`).

What is left of a round is then the overlay's own and the connection's.  Weights are dummies, so nothing is accepted,
whoever drafts.  A script, not a test: `python tests/gpu/engine_steps.py`, with the paths that `nox -s gpu_test` sets.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "engine"), str(HERE.parents[1])]

from driver import Engine, dspark  # noqa: E402
from engines import GRAPHS, Requests, environment, means, timed_run  # noqa: E402
from worker_process import free_port  # noqa: E402

VOCABULARY, DRAFTS, TOKENS = 151_936, 7, 64
BATCHES = (1, 8, 32)
IDENTITY = "1d" * 32
SHAPE: dict[str, Any] = {
    "model_type": "qwen3", "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 12288, "max_position_embeddings": 40960, "num_attention_heads": 32,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "vocab_size": VOCABULARY,
    "dtype": "bfloat16", "tie_word_embeddings": False, "use_sliding_window": False,
}  # fmt: skip
TARGET = SHAPE | {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36}
DRAFTER = SHAPE | {
    "architectures": ["Qwen3DSparkModel"], "num_hidden_layers": 5, "block_size": DRAFTS, "mask_token_id": 151_669,
    "markov_rank": 256, "markov_head_type": "vanilla", "target_layer_ids": [1, 9, 17, 25, 33], "num_target_layers": 36,
}  # fmt: skip
ENGINE: dict[str, Any] = {
    "dtype": "bfloat16",
    "load_format": "dummy",
    "block_size": 16,
    "max_model_len": 1024,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 2048,
    "enable_prefix_caching": False,
    "kv_cache_memory_bytes": None,
    "gpu_memory_utilization": 0.3,
    "seed": 0,
}
KINDS = ("plain", "stock", "capacity", "resilience")


def requests(batch: int) -> Requests:
    """So many prompts of 32 random tokens."""
    source = random.Random(batch)
    return {
        f"r{index}": {"prompt": [source.randrange(VOCABULARY) for _ in range(32)], "max_tokens": TOKENS}
        for index in range(batch)
    }


@contextmanager
def mock_worker(drafter: Path) -> Iterator[str]:
    """A worker of the drafter's shape; its endpoint."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "x86_worker", "mock", "--like", str(drafter), "--unsafe-any-policy"]
    command += ["--identity", IDENTITY, "--markov-identity", IDENTITY, "--listen", endpoint]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "listens on" in line:
                break
        try:
            yield endpoint
        finally:
            process.kill()


def measured(kind: str, folder: Path) -> dict[str, Any]:
    """One engine's figures."""
    with ExitStack() as stack:
        settings = {}
        if kind not in ("plain", "stock"):
            own = {
                "": stack.enter_context(mock_worker(folder / "drafter")),
                "_POLICY": kind,
                "_IDENTITY": IDENTITY,
                "_MARKOV_IDENTITY": IDENTITY,
                "_TIMEOUT_MS": "1000",
            }
            settings = {f"VLLM_DSPARK_REMOTE{name}": value for name, value in own.items()}
        log = folder / f"{kind}.log"
        engine = stack.enter_context(Engine(log, environment("cuda", folder / "path", **settings)))
        speculative = {} if kind == "plain" else {"speculative_config": dspark(folder / "drafter", DRAFTS)}
        found = engine.start(model=str(folder / "target"), **(ENGINE | GRAPHS | speculative))
        assert found["event"] == "ready", (found, engine.said()[-4000:])
        figures: dict[str, Any] = {"kind": kind, "memory": engine.on_ranks("memory")[0]}
        for batch in BATCHES:
            timed_run(engine, requests(batch))
            before = engine.stats()["latency"] if settings else {}
            done = timed_run(engine, requests(batch))
            figures[f"batch {batch}"] = {
                "steps": done.steps,
                "step_ms": round(1e3 * done.seconds / done.steps, 3),
                "mean_us": means(before, engine.stats()["latency"]) if settings else {},
            }
        if settings:
            figures["counters"] = {k: v for k, v in engine.stats()["counters"].items() if v}
            figures["said"] = [line for line in engine.said().splitlines() if "startup.py" in line]
        engine.quit()
        return figures


def main() -> None:
    """Prints one JSON object an engine."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("kinds", nargs="*", default=KINDS, help=f"of {', '.join(KINDS)}")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, config in (("target", TARGET), ("drafter", DRAFTER)):
            (folder / part).mkdir()
            (folder / part / "config.json").write_text(json.dumps(config))
        for kind in chosen.kinds:
            print(json.dumps(measured(kind, folder), indent=1), flush=True)


if __name__ == "__main__":
    main()
