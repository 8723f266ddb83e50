"""The few formulas of a Qwen3 block, each once.  Tensors in, tensors out; no state, no configuration."""

import torch
from torch import Tensor

from x86_worker.checkpoint import LayerAttention


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) * weight over the last dimension.  Computed in float32, rounded to x's dtype once."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def rotary_table(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32 [rows, 1, head_dim/2], of absolute positions [rows]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions.float()[:, None, None] * (1.0 / theta**exponents)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of x [rows, heads, head_dim]: dimension i turns with dimension i + head_dim/2."""
    cosine, sine = table
    first, second = x.float().chunk(2, -1)
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)
    return turned.to(x.dtype)


def visible(queries: Tensor, keys: Tensor, rule: LayerAttention) -> Tensor:
    """bool [queries, keys]: which absolute key positions a query position sees.

    vLLM's rule, measured on its CPU kernel and the same as FlashAttention's: a window W spans (q-W, q+W),
    cut at q where the layer is causal.
    """
    distance = queries[:, None] - keys[None, :]
    seen = torch.ones_like(distance, dtype=torch.bool)
    if rule.window is not None:
        seen &= distance.abs() < rule.window
    if rule.causal:
        seen &= distance >= 0
    return seen


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Softmax attention in float32 with grouped heads.

    q: [queries, heads, head_dim]; k, v: [keys, kv_heads, head_dim]; seen: bool [queries, keys], at least
    one key per query.  Returns [queries, heads * head_dim] in q's dtype.
    """
    queries, heads, head_dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.float().view(queries, kv_heads, heads // kv_heads, head_dim)
    scores = torch.einsum("qngd,knd->ngqk", grouped, k.float()) * head_dim**-0.5
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("ngqk,knd->qngd", weights, v.float()).reshape(queries, heads * head_dim).to(q.dtype)
