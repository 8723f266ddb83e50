"""Folders as small as the formats allow, written with the standard library alone."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

Shapes = dict[str, tuple[int, ...]]

ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "F8_E4M3": 1}

TARGET_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 10,
    "hidden_size": 4,
    "num_hidden_layers": 3,
    "tie_word_embeddings": False,
}
DRAFTER_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"],
    "model_type": "qwen3",
    "vocab_size": 10,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 2,
    "max_position_embeddings": 64,
    "target_layer_ids": [0, 2],
    "mask_token_id": 9,
    "block_size": 5,
    "markov_rank": 3,
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "torch_dtype": "bfloat16",
}


def drafter_shapes() -> Shapes:
    """Tensors of a drafter with DRAFTER_CONFIG that borrows embedding and head."""
    shapes: Shapes = {
        "fc.weight": (4, 8),
        "hidden_norm.weight": (4,),
        "norm.weight": (4,),
        "markov_head.markov_w1.weight": (10, 3),
        "markov_head.markov_w2.weight": (10, 3),
        "confidence_head.proj.weight": (1, 7),
        "confidence_head.proj.bias": (1,),
    }
    for layer in range(2):
        at = f"layers.{layer}."
        shapes |= {
            f"{at}input_layernorm.weight": (4,),
            f"{at}post_attention_layernorm.weight": (4,),
            f"{at}self_attn.q_proj.weight": (4, 4),
            f"{at}self_attn.k_proj.weight": (2, 4),
            f"{at}self_attn.v_proj.weight": (2, 4),
            f"{at}self_attn.o_proj.weight": (4, 4),
            f"{at}self_attn.q_norm.weight": (2,),
            f"{at}self_attn.k_norm.weight": (2,),
            f"{at}mlp.gate_proj.weight": (6, 4),
            f"{at}mlp.up_proj.weight": (6, 4),
            f"{at}mlp.down_proj.weight": (4, 6),
        }
    return shapes


def target_shapes() -> Shapes:
    """The tensors of a target that a drafter may borrow, and one that it may not."""
    return {"model.embed_tokens.weight": (10, 4), "lm_head.weight": (10, 4), "model.norm.weight": (4,)}


def filled(name: str, shape: tuple[int, ...], dtype: str = "BF16") -> tuple[str, tuple[int, ...], bytes]:
    """A tensor whose bytes depend on its name."""
    size = prod(shape) * ITEM_BYTES[dtype]
    return dtype, shape, bytes((sum(name.encode()) + index) % 60 for index in range(size))


def int64(*values: int) -> tuple[str, tuple[int, ...], bytes]:
    """An int64 vector."""
    return "I64", (len(values),), b"".join(value.to_bytes(8, "little", signed=True) for value in values)


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """tensors: dtype, shape and bytes by name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def write_folder(folder: Path, config: Mapping[str, Any], shapes: Shapes, **tensors: Any) -> Path:
    """config.json and model.safetensors; tensors: whole ones on top of shapes, with __ for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    whole = {name: filled(name, shape) for name, shape in shapes.items()}
    whole |= {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    write_safetensors(folder / "model.safetensors", whole)
    return folder


def write_pair(root: Path, **config: Any) -> tuple[Path, Path]:
    """A drafter that borrows embedding and head, and its target; config: changes to the drafter's."""
    drafter = write_folder(root / "drafter", DRAFTER_CONFIG | config, drafter_shapes())
    return drafter, write_folder(root / "target", TARGET_CONFIG, target_shapes())
