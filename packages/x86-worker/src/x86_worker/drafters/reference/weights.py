"""A checkpoint's tensors as torch tensors of one dtype on one device, named as the formulas name them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from x86_worker.checkpoint import DrafterCheckpoint, StoredTensor
from x86_worker.checkpoint.drafter import (
    CONFIDENCE,
    DRAFT_TO_TARGET,
    EMBEDDING,
    HEAD,
    MARKOV_EMBEDDING,
    MARKOV_HEAD,
)

TORCH_DTYPES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "I32": torch.int32,
}


@dataclass(frozen=True)
class Linear:
    """weight [out, in]; bias [out] or None."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer."""

    input_norm: Tensor
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    q_norm: Tensor
    k_norm: Tensor
    post_attention_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True)
class Weights:
    """Everything that drafting uses, in the compute dtype; the confidence head in float32, as vLLM keeps
    it.

    head, markov_head: only the rows that are ids of the target.  draft_to_target: int64 [rows], the target
    id of each draft id, None where they are the same.  embedding may be the same tensor as head.
    """

    embedding: Tensor
    fc: Linear
    hidden_norm: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear
    markov_embedding: Tensor
    markov_head: Linear
    confidence: Linear | None
    draft_to_target: Tensor | None


def load_weights(checkpoint: DrafterCheckpoint, dtype: torch.dtype, device: torch.device) -> Weights:
    """Copies the checkpoint's tensors to the device.  Shapes were checked when it was read."""
    stored = checkpoint.tensors

    def get(name: str) -> Tensor:
        return to_torch(stored[name]).to(device, dtype)

    def linear(name: str) -> Linear:
        bias = f"{name}.bias"
        return Linear(get(f"{name}.weight"), get(bias) if bias in stored else None)

    rows = checkpoint.draft_rows
    confidence = None
    if checkpoint.has_confidence:
        weight, bias = (to_torch(stored[f"{CONFIDENCE}proj.{part}"]) for part in ("weight", "bias"))
        confidence = Linear(weight.to(device, torch.float32), bias.to(device, torch.float32))
    return Weights(
        embedding=get(EMBEDDING),
        fc=linear("fc"),
        hidden_norm=get("hidden_norm.weight"),
        layers=tuple(
            _layer(get, linear, f"layers.{index}.") for index in range(len(checkpoint.config.layers))
        ),
        norm=get("norm.weight"),
        head=Linear(get(HEAD)[:rows], None),
        markov_embedding=get(MARKOV_EMBEDDING),
        markov_head=Linear(get(MARKOV_HEAD)[:rows], None),
        confidence=confidence,
        draft_to_target=_draft_to_target(checkpoint, device),
    )


def _layer(get: Callable[[str], Tensor], linear: Callable[[str], Linear], prefix: str) -> LayerWeights:
    attention = f"{prefix}self_attn."
    return LayerWeights(
        input_norm=get(f"{prefix}input_layernorm.weight"),
        q=linear(f"{attention}q_proj"),
        k=linear(f"{attention}k_proj"),
        v=linear(f"{attention}v_proj"),
        o=linear(f"{attention}o_proj"),
        q_norm=get(f"{attention}q_norm.weight"),
        k_norm=get(f"{attention}k_norm.weight"),
        post_attention_norm=get(f"{prefix}post_attention_layernorm.weight"),
        gate=linear(f"{prefix}mlp.gate_proj"),
        up=linear(f"{prefix}mlp.up_proj"),
        down=linear(f"{prefix}mlp.down_proj"),
    )


def _draft_to_target(checkpoint: DrafterCheckpoint, device: torch.device) -> Tensor | None:
    stored = checkpoint.tensors.get(DRAFT_TO_TARGET)
    if stored is None:
        return None
    differences = to_torch(stored).to(device, torch.int64)
    return torch.arange(len(differences), device=device) + differences


def to_torch(stored: StoredTensor) -> Tensor:
    """A copy of a stored tensor, in its own dtype on the CPU."""
    # A bytearray, because torch warns about memory that it may not write to.
    flat = torch.frombuffer(bytearray(stored.data), dtype=TORCH_DTYPES[stored.dtype])
    return flat.view(stored.shape)
