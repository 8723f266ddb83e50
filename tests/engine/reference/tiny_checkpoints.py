"""Tiny random Qwen3 targets and Qwen3-DSpark drafters, one kind per rule that the mathematics has.

Random, but not arbitrary: the Markov head knows the target's bigrams and the head is the target's own, so
that some drafts are accepted and some are not, and every id depends on the context as well as on the token
before.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from safetensors.numpy import save_file

Arrays = dict[str, np.ndarray]

VOCABULARY, HIDDEN, INTERMEDIATE = 512, 128, 256
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
TARGET_LAYERS, DRAFTER_LAYERS = 4, 3
TAPS = [0, 1, 3]
BLOCK, MASK_ID, RANK = 5, 511, HIDDEN
FULL, SLIDING = "full_attention", "sliding_attention"

COMMON: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "use_sliding_window": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


@dataclass(frozen=True)
class Kind:
    """One kind of drafter.

    config: keys on top of the common ones.  draft_rows: size of a reduced draft vocabulary (with d2t and
    its own head), None for the target's.  tied: the target's head is its embedding.
    """

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    draft_rows: int | None = None
    tied: bool = False


def sliding(window: int, types: list[str], **more: Any) -> dict[str, Any]:
    """Keys of a drafter with windows."""
    return {"layer_types": types, "sliding_window": window, "use_sliding_window": True, **more}


KINDS = {
    kind.name: kind
    for kind in (
        Kind("full"),
        Kind("sliding", sliding(24, [SLIDING] * 3)),
        Kind("mixed", sliding(24, [SLIDING, FULL, SLIDING])),
        Kind("sliding-not-causal", sliding(24, [SLIDING] * 3, is_causal=False), draft_rows=384),
        Kind(
            "fill-in",
            sliding(24, [FULL, SLIDING, SLIDING], sample_from_anchor=False, attention_bias=True)
            | {"confidence_head_with_markov": False},
        ),
        Kind("full-causal-tied", {"dflash_config": {"causal": True}}, tied=True),
    )
}


def make_pair(folder: Path, kind: Kind, seed: int = 0) -> tuple[Path, Path]:
    """Writes folder/drafter and folder/target; returns both."""
    random = np.random.default_rng(seed)
    target = _target_arrays(random, kind.tied)
    _save(
        folder / "target",
        COMMON
        | {
            "architectures": ["Qwen3ForCausalLM"],
            "num_hidden_layers": TARGET_LAYERS,
            "tie_word_embeddings": kind.tied,
        },
        target,
    )
    _save(folder / "drafter", drafter_config(kind), _drafter_arrays(random, kind, target))
    return folder / "drafter", folder / "target"


def drafter_config(kind: Kind) -> dict[str, Any]:
    """The drafter's config.json."""
    config = COMMON | {
        "architectures": ["Qwen3DSparkModel"],
        "num_hidden_layers": DRAFTER_LAYERS,
        "block_size": BLOCK,
        "mask_token_id": MASK_ID,
        "target_layer_ids": TAPS,
        "num_target_layers": TARGET_LAYERS,
        "markov_rank": RANK,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }
    if kind.draft_rows is not None:
        config["draft_vocab_size"] = kind.draft_rows
    return config | kind.config


def _target_arrays(random: Generator, tied: bool) -> Arrays:
    arrays = {"model.embed_tokens.weight": _normal(random, 0.3 if tied else 1.0, VOCABULARY, HIDDEN)}
    arrays |= _layers(random, TARGET_LAYERS, "model.", scale=0.05, bias=False)
    arrays["model.norm.weight"] = _around(random, 1.0, HIDDEN)
    if not tied:
        arrays["lm_head.weight"] = _normal(random, 0.3, VOCABULARY, HIDDEN)
    return arrays


def _drafter_arrays(random: Generator, kind: Kind, target: Arrays) -> Arrays:
    embedding = target["model.embed_tokens.weight"]
    head = target.get("lm_head.weight", embedding)
    bias = bool(kind.config.get("attention_bias"))
    arrays = _layers(random, DRAFTER_LAYERS, "", scale=0.08, bias=bias)
    arrays["fc.weight"] = _normal(random, 0.05, HIDDEN, HIDDEN * len(TAPS))
    arrays["hidden_norm.weight"] = _around(random, 1.0, HIDDEN)
    arrays["norm.weight"] = _around(random, 0.6, HIDDEN)
    arrays["markov_head.markov_w1.weight"] = embedding / np.sqrt(np.square(embedding).mean(-1, keepdims=True))
    rows = np.arange(VOCABULARY)
    if kind.draft_rows is not None:
        rows = np.sort(random.permutation(VOCABULARY)[: kind.draft_rows])
        arrays["d2t"] = (rows - np.arange(kind.draft_rows)).astype(np.int64)
        arrays["lm_head.weight"] = head[rows]
    arrays["markov_head.markov_w2.weight"] = head[rows] * 0.8
    width = HIDDEN + RANK * kind.config.get("confidence_head_with_markov", True)
    arrays["confidence_head.proj.weight"] = _normal(random, 0.1, 1, width)
    arrays["confidence_head.proj.bias"] = _normal(random, 0.5, 1)
    return arrays


def _layers(random: Generator, count: int, prefix: str, *, scale: float, bias: bool) -> Arrays:
    arrays: Arrays = {}
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {
        "self_attn.q_proj": (queries, HIDDEN),
        "self_attn.k_proj": (keys, HIDDEN),
        "self_attn.v_proj": (keys, HIDDEN),
        "self_attn.o_proj": (HIDDEN, queries),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    for layer in range(count):
        at = f"{prefix}layers.{layer}."
        for name, shape in shapes.items():
            arrays[f"{at}{name}.weight"] = _normal(random, scale, *shape)
            if bias and name.startswith("self_attn."):
                arrays[f"{at}{name}.bias"] = _normal(random, 0.2, shape[0])
        for name, size in (("input_layernorm", HIDDEN), ("post_attention_layernorm", HIDDEN)):
            arrays[f"{at}{name}.weight"] = _around(random, 1.0, size)
        for name in ("q_norm", "k_norm"):
            # Sharp attention, and different in each layer: another layer's weight on a key shows.
            arrays[f"{at}self_attn.{name}.weight"] = _around(random, 1.8, HEAD_DIM)
    return arrays


def _normal(random: Generator, scale: float, *shape: int) -> np.ndarray:
    return (random.standard_normal(shape) * scale).astype(np.float32)


def _around(random: Generator, center: float, size: int) -> np.ndarray:
    return (center * (1 + 0.3 * random.standard_normal(size))).astype(np.float32)


def _save(folder: Path, config: dict[str, Any], arrays: Arrays) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
