"""How long the reference drafter takes for a block, beside the least that this device needs to touch the same bytes.

    python benchmarks/draft.py [--device cuda] [--rounds 200] [--pair demo/pair] [--small] [--json FILE]

Two drafters: the demo pair, and one of random weights in the shape that serves Qwen3-8B (5 layers, hidden 4096, block
of 7, 4,096 rows of context).  Times are wall-clock around whole calls, results on the host.  The floor is bytes over
the bandwidth of a large copy on the same device in the same run; no drafter of this shape can be faster there.
--small shrinks the second drafter, to try the script.  Needs x86-worker and torch.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ofl.contract.dspark_v1 import RowDtype, RowForm
from safetensors.torch import save_file
from x86_worker.checkpoint import DrafterConfig, read_drafter_config
from x86_worker.drafters.base import Context, Draft, DraftWish
from x86_worker.drafters.reference import ReferenceDrafter, load_reference_drafter

BATCHES = (1, 2, 4)
WARM_UP = 10
ROWS_A_ROUND = 4
"""Context rows that a request gets each round: about what a verified block leaves."""
COPY_BYTES = {"cuda": 2 << 30, "cpu": 128 << 20}

QWEN3_8B: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "block_size": 7,
    "mask_token_id": 151669,
    "target_layer_ids": [1, 9, 17, 25, 33],
    "num_target_layers": 36,
    "markov_rank": 256,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "torch_dtype": "bfloat16",
}
CONTEXT_ROWS = 4096
SMALL = {"vocab_size": 1024, "hidden_size": 256, "intermediate_size": 512, "mask_token_id": 1000}


@dataclass(frozen=True)
class Timing:
    """Milliseconds.  append: ROWS_A_ROUND rows for each request; draft: one block for each.

    megabytes: what one draft must touch, at least; floor_ms: that over the copy's bandwidth.
    """

    drafter: str
    batch: int
    context_rows: int
    append_p50_ms: float
    draft_p50_ms: float
    draft_p99_ms: float
    megabytes: float
    floor_ms: float


def write_random_pair(folder: Path, config: dict[str, Any], device: torch.device) -> tuple[Path, Path]:
    """A drafter's folder with random bfloat16 weights of that shape, and the config.json of its target."""
    drafter, target = folder / "drafter", folder / "target"
    for path in (drafter, target):
        path.mkdir()
    (drafter / "config.json").write_text(json.dumps(config))
    layers = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": config["num_target_layers"]}
    (target / "config.json").write_text(json.dumps(config | layers))
    tensors = {}
    for name, shape in shapes_of(config):
        scale = shape[-1] ** -0.5 if len(shape) > 1 else 0.1
        values = torch.randn(shape, dtype=torch.bfloat16, device=device) * scale
        tensors[name] = (values + 1 if "norm" in name else values).cpu()
    save_file(tensors, drafter / "model.safetensors")
    return drafter, target


def shapes_of(config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Every tensor of a drafter with its own embedding and head."""
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    rank, head_dim = config["markov_rank"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("embed_tokens.weight", (vocabulary, hidden)),
        ("lm_head.weight", (vocabulary, hidden)),
        ("fc.weight", (hidden, hidden * len(config["target_layer_ids"]))),
        ("hidden_norm.weight", (hidden,)),
        ("norm.weight", (hidden,)),
        ("markov_head.markov_w1.weight", (vocabulary, rank)),
        ("markov_head.markov_w2.weight", (vocabulary, rank)),
        ("confidence_head.proj.weight", (1, hidden + rank)),
        ("confidence_head.proj.bias", (1,)),
    ]
    for layer in range(config["num_hidden_layers"]):
        parts: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "self_attn.q_norm": (head_dim,),
            "self_attn.k_norm": (head_dim,),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        shapes += [(f"layers.{layer}.{name}.weight", shape) for name, shape in parts.items()]
    return shapes


def bytes_touched(config: DrafterConfig, context_rows: int, batch: int, item_bytes: int) -> int:
    """The least that a draft reads: layers and head once, the Markov head once per position (each needs the token
    before it), the rows of each request that its layers attend to.  Activations are left out.
    """
    hidden, queries = config.hidden_size, config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    layer = hidden * (2 * queries + 2 * keys + 3 * config.intermediate_size)
    heads = config.draft_vocab_size * (hidden + config.block_length * config.markov_rank)
    rows = [
        context_rows if rule.context_rows is None else min(context_rows, rule.context_rows)
        for rule in config.layers
    ]
    return item_bytes * (layer * len(config.layers) + heads + batch * 2 * keys * sum(rows))


def copy_bandwidth(device: torch.device) -> float:
    """Bytes read plus bytes written per second of a large copy, the median of 9 times 5 copies."""
    source = torch.randint(0, 255, (COPY_BYTES[device.type],), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copies() -> None:
        for _ in range(5):
            target.copy_(source)

    times = timed(copies, 9, device)
    return 5 * 2 * source.numel() / statistics.median(times)


def timed(call: Callable[[], object], rounds: int, device: torch.device) -> list[float]:
    """Seconds of each of some calls, with nothing under way before or after."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    times = []
    for index in range(WARM_UP + rounds):
        wait()
        begun = time.perf_counter()
        call()
        wait()
        if index >= WARM_UP:
            times.append(time.perf_counter() - begun)
    return times


class Load:
    """Some requests with full contexts."""

    def __init__(
        self, drafter: ReferenceDrafter, config: DrafterConfig, context_rows: int, batch: int
    ) -> None:
        self._drafter, self._config, self._end = drafter, config, context_rows
        random = np.random.default_rng(0)
        self._contexts: list[Context] = []
        for _ in range(batch):
            context = drafter.new_context(RowForm.RAW, RowDtype.BFLOAT16)
            for first in range(0, context_rows, 256):
                count = min(256, context_rows - first)
                context.append(first, random_rows(random, count, config.row_elements), count)
            if drafter.facts.window:
                context.drop_before(max(0, context.end - drafter.facts.window))
            self._contexts.append(context)
        self._rows = random_rows(random, ROWS_A_ROUND, config.row_elements)

    def append(self) -> None:
        """The last rows again, so that the length stays."""
        for context in self._contexts:
            context.append(self._end - ROWS_A_ROUND, self._rows, ROWS_A_ROUND)

    def draft(self) -> None:
        """One block for each request."""
        length = self._config.block_length
        wishes = [
            DraftWish(context, context.start, 7 + index, context.end, length)
            for index, context in enumerate(self._contexts)
        ]
        for block in self._drafter.draft(wishes):
            if not isinstance(block, Draft):
                raise SystemExit(f"no draft: {block.reason}")


def random_rows(random: np.random.Generator, count: int, elements: int) -> memoryview:
    """bfloat16 rows of normal numbers: the upper halves of float32."""
    wide = random.standard_normal((count, elements), dtype=np.float32)
    return memoryview((wide.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def measure(
    name: str, folders: tuple[Path, Path], context_rows: int, options: argparse.Namespace, bandwidth: float
) -> list[Timing]:
    """All batches of one drafter."""
    drafter = load_reference_drafter(*folders, dtype="bfloat16", device=str(options.device))
    config = read_drafter_config(folders[0])
    results = []
    for batch in BATCHES:
        load = Load(drafter, config, context_rows, batch)
        appends = timed(load.append, options.rounds, options.device)
        drafts = timed(load.draft, options.rounds, options.device)
        touched = bytes_touched(config, context_rows, batch, torch.bfloat16.itemsize)
        timing = Timing(
            name,
            batch,
            context_rows,
            statistics.median(appends) * 1e3,
            statistics.median(drafts) * 1e3,
            float(np.percentile(drafts, 99)) * 1e3,
            touched / 1e6,
            touched / bandwidth * 1e3,
        )
        results.append(timing)
        print(
            f"{name:12} {batch:5} {context_rows:7} {timing.append_p50_ms:10.3f} {timing.draft_p50_ms:10.3f} "
            f"{timing.draft_p99_ms:10.3f} {timing.megabytes:9.1f} {timing.floor_ms:9.4f} "
            f"{timing.draft_p50_ms / timing.floor_ms:8.1f}",
            flush=True,
        )
    return results


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Draft times of the reference drafter, with their floor.")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--pair", type=Path, default=Path(__file__).parents[3] / "demo" / "pair")
    parser.add_argument("--small", action="store_true", help="shrink the second drafter")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    on_gpu = options.device.type == "cuda"
    bandwidth = copy_bandwidth(options.device)
    where = torch.cuda.get_device_name(options.device) if on_gpu else "CPU"
    print(
        f"{where}, torch {torch.__version__}, bfloat16; a large copy moves {bandwidth / 1e9:.0f} GB/s (read + written)"
    )
    print("drafter      batch context append_p50  draft_p50  draft_p99  MB_least  floor_ms    ratio   (ms)")
    results = measure(
        "demo pair", (options.pair / "drafter", options.pair / "target"), 512, options, bandwidth
    )
    with tempfile.TemporaryDirectory() as folder:
        config, rows = (QWEN3_8B | SMALL, 256) if options.small else (QWEN3_8B, CONTEXT_ROWS)
        folders = write_random_pair(Path(folder), config, options.device)
        results += measure("small" if options.small else "Qwen3-8B", folders, rows, options, bandwidth)
    if options.json:
        record = {"device": where, "torch": torch.__version__, "copy_bytes_per_second": bandwidth}
        options.json.write_text(json.dumps(record | {"timings": [asdict(result) for result in results]}))


if __name__ == "__main__":
    main()
