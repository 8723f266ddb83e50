"""Writes the pair as folders that engines load: configurations, weights, tokenizer, record and manifest.

Owns the configuration keys and the manifest's form.  Must stay pure (no torch): the weights are copied as the
training wrote them.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from demo.training.settings import BLOCK_TOKENS, END_ID, MASK_ID, RMS_EPS, ROPE_THETA, Settings

PAIR = Path(__file__).parent.parent / "pair"
MANIFEST_NAME = "manifest.json"
BYTES_MAX = 8_000_000  # of all files of the pair together


def _shared_config(settings: Settings) -> dict[str, Any]:
    shape = settings.target
    return {
        "model_type": "qwen3",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": settings.context,
        "rms_norm_eps": RMS_EPS,
        "rope_theta": ROPE_THETA,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_cache": True,
        "bos_token_id": END_ID,
        "eos_token_id": END_ID,
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
    }


def target_config(settings: Settings) -> dict[str, Any]:
    """The target's config.json."""
    return _shared_config(settings) | {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": settings.target.layers,
        "intermediate_size": settings.target.mlp,
        "use_sliding_window": False,
    }


def drafter_config(settings: Settings) -> dict[str, Any]:
    """The drafter's config.json: every layer slides, so vLLM makes every layer causal."""
    shape = settings.drafter
    return _shared_config(settings) | {
        "architectures": ["Qwen3DSparkModel"],
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.mlp,
        "layer_types": ["sliding_attention"] * shape.layers,
        "use_sliding_window": True,
        "sliding_window": shape.window_tokens,
        "block_size": BLOCK_TOKENS,
        "mask_token_id": MASK_ID,
        "target_layer_ids": list(shape.taps),
        "num_target_layers": settings.target.layers,
        "markov_rank": shape.markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }


def _tokenizer_config(settings: Settings) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": settings.context,
    }


def export_pair(run: Path, data: Path, settings: Settings, pair: Path = PAIR) -> dict[str, Any]:
    """Make `pair` from what the training wrote into `run` and the tokenizer in `data`; returns the manifest."""
    for role in ("target", "drafter"):
        folder = pair / role
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / f"{role}.safetensors", folder / "model.safetensors")
    _write_json(pair / "target" / "config.json", target_config(settings))
    _write_json(pair / "drafter" / "config.json", drafter_config(settings))
    _write_json(pair / "target" / "tokenizer_config.json", _tokenizer_config(settings))
    shutil.copyfile(data / "tokenizer.json", pair / "target" / "tokenizer.json")
    shutil.copyfile(run / "record.json", pair / "record.json")
    return write_manifest(pair)


def write_manifest(pair: Path = PAIR) -> dict[str, Any]:
    """Digest every file of the pair into manifest.json; returns it.  Raises ValueError when the pair is too large."""
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(pair.rglob("*")):
        name = path.relative_to(pair).as_posix()
        if path.is_file() and name != MANIFEST_NAME:
            path.chmod(0o644)  # safetensors writes 0600
            content = path.read_bytes()
            files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    total = sum(entry["bytes"] for entry in files.values())
    if total > BYTES_MAX:
        raise ValueError(f"the pair takes {total} bytes, more than {BYTES_MAX}")
    manifest = {"bytes": total, "files": files}
    _write_json(pair / MANIFEST_NAME, manifest)
    return manifest


def check_manifest(pair: Path = PAIR) -> list[str]:
    """What differs from manifest.json, one clause a file; empty when the pair is whole."""
    named = json.loads((pair / MANIFEST_NAME).read_text())["files"]
    here = {path.relative_to(pair).as_posix() for path in pair.rglob("*") if path.is_file()} - {MANIFEST_NAME}
    wrong = [f"{name} is not in the manifest" for name in sorted(here - set(named))]
    for name, entry in named.items():
        if name not in here:
            wrong.append(f"{name} is missing")
        elif hashlib.sha256((pair / name).read_bytes()).hexdigest() != entry["sha256"]:
            wrong.append(f"{name} differs from its digest")
    return wrong


def add_to_record(facts: dict[str, Any], pair: Path = PAIR) -> None:
    """Merge facts measured on the finished pair into its record.json and renew the manifest."""
    path = pair / "record.json"
    _write_json(path, json.loads(path.read_text()) | facts)
    write_manifest(pair)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
