"""The parts that target and drafter share: RMS norm, rotary positions, grouped attention, gated MLP.

Owns the Qwen3 layer's arithmetic and its parameter names, which are those of the checkpoints.  Must stay plain
torch: what is trained here has to be what any implementation of Qwen3 computes.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.training.settings import RMS_EPS, ROPE_THETA

Rotation = tuple[Tensor, Tensor]  # cosines and signed sines, each [..., positions, head_dim]


def rotations(positions: int, head_dim: int, device: str) -> Rotation:
    """Rotary tables for positions 0 .. positions - 1, each float32 [positions, head_dim]."""
    frequency = 1.0 / ROPE_THETA ** (torch.arange(0, head_dim, 2, device=device).float() / head_dim)
    angle = torch.arange(positions, device=device).float()[:, None] * frequency
    return torch.cat([angle.cos(), angle.cos()], -1), torch.cat([-angle.sin(), angle.sin()], -1)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Apply rotary positions to x [rows, heads, positions, head_dim] (the halves layout of Qwen3)."""
    half = x.shape[-1] // 2
    swapped = torch.cat([x[..., half:], x[..., :half]], -1)
    return x * rotation[0].to(x.dtype) + swapped * rotation[1].to(x.dtype)


class RmsNorm(nn.Module):
    """Root mean square norm over the last axis, with a weight."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), RMS_EPS)


class Attention(nn.Module):
    """Grouped-query attention with a norm on each head's query and key, as in Qwen3."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.q_proj = nn.Linear(hidden, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, hidden, bias=False)
        self.q_norm, self.k_norm = RmsNorm(head_dim), RmsNorm(head_dim)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.head_dim).transpose(1, 2)

    def queries(self, x: Tensor, rotation: Rotation) -> Tensor:
        """x [rows, positions, hidden] -> [rows, heads, positions, head_dim]."""
        return rotate(self.q_norm(self._split(self.q_proj(x), self.heads)), rotation)

    def keys_values(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """x [rows, positions, hidden] -> keys and values, each [rows, kv_heads, positions, head_dim]."""
        keys = rotate(self.k_norm(self._split(self.k_proj(x), self.kv_heads)), rotation)
        return keys, self._split(self.v_proj(x), self.kv_heads)

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """mask: bool, true where a query sees a key, broadcastable to [rows, heads, queries, keys]."""
        group = self.heads // self.kv_heads
        keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        out = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=causal)
        mixed: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return mixed


class GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer's modules; target and drafter wire them differently."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, head_dim: int, inner: int) -> None:
        super().__init__()
        self.self_attn = Attention(hidden, heads, kv_heads, head_dim)
        self.mlp = GatedMlp(hidden, inner)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(hidden), RmsNorm(hidden)


def initialise(module: nn.Module, layers: int) -> None:
    """Normal weights: 0.02 for tables and heads, half the usual fan-in scale for matrices.

    Matrices that write to the residual stream are smaller still, by (2 layers) ** -0.5.
    """
    for name, weight in module.named_parameters():
        if weight.dim() < 2:
            continue
        table = "embed" in name or "markov" in name
        nn.init.normal_(weight, std=0.02 if table else 0.5 * weight.shape[1] ** -0.5)
        if "o_proj" in name or "down_proj" in name:
            weight.data.mul_((2 * layers) ** -0.5)


def round_to_bf16(module: nn.Module) -> None:
    """Round all weights to what the checkpoint will hold, so that later stages see the shipped model."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(weight.bfloat16().float())
