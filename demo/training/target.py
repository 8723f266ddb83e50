"""The target: a small Qwen3 decoder with tied embeddings, and its own texts.

Owns the forward pass, the outputs of the tapped layers, and generation with a key-value cache.  Must never emit
the mask token.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.training.layers import Layer, RmsNorm, Rotation, initialise
from demo.training.settings import MASK_ID, TargetShape


class Decoder(nn.Module):
    """Embedding, layers and final norm, named as in a Qwen3 checkpoint."""

    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(
            Layer(shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.mlp)
            for _ in range(shape.layers)
        )
        self.norm = RmsNorm(shape.hidden)


class Target(nn.Module):
    """The model that is drafted for."""

    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        initialise(self, shape.layers)

    @property
    def table(self) -> Tensor:
        """The tied embedding and head, [vocab, hidden]."""
        return self.model.embed_tokens.weight

    def forward(
        self, ids: Tensor, rotation: Rotation, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """ids int64 [rows, positions] -> logits [rows, positions, vocab] and the tapped layers' outputs.

        Taps are concatenated in the order of the layers, [rows, positions, len(taps) * hidden]; None without taps.
        """
        rotation = (rotation[0][: ids.shape[1]], rotation[1][: ids.shape[1]])
        hidden = self.model.embed_tokens(ids)
        tapped = []
        for index, layer in enumerate(self.model.layers):
            normed = layer.input_layernorm(hidden)
            keys, values = layer.self_attn.keys_values(normed, rotation)
            queries = layer.self_attn.queries(normed, rotation)
            hidden = hidden + layer.self_attn.attend(queries, keys, values, causal=True)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            if index in taps:
                tapped.append(hidden)
        logits = functional.linear(self.model.norm(hidden), self.table)
        return logits, torch.cat(tapped, -1) if tapped else None


class Generator:
    """Continues prompts with a target, all rows of a batch in step, with a preallocated key-value cache."""

    def __init__(self, target: Target, rotation: Rotation) -> None:
        self._target, self._rotation = target, rotation

    @torch.no_grad()
    def continue_texts(
        self,
        prompts: Tensor,
        new_tokens: int,
        temperatures: Tensor | None = None,
        random: torch.Generator | None = None,
    ) -> Tensor:
        """prompts int64 [rows, positions] -> texts int64 [rows, positions + new_tokens], prompts included.

        temperatures: float [rows], 0 for greedy; None for greedy everywhere.
        """
        rows, start = prompts.shape
        length = start + new_tokens
        texts = torch.zeros(rows, length, dtype=torch.long, device=prompts.device)
        texts[:, :start] = prompts
        caches = self._caches(rows, length, prompts.device)
        done, step = 0, prompts
        for position in range(start, length):
            logits = self._advance(step, done, caches)
            done = position
            texts[:, position] = _choose(logits, temperatures, random)
            step = texts[:, position : position + 1]
        return texts

    def _caches(self, rows: int, length: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
        shape = self._target.shape
        dtype = (
            torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else torch.float32
        )
        size = (rows, shape.kv_heads, length, shape.head_dim)
        return [
            (torch.zeros(size, device=device, dtype=dtype), torch.zeros(size, device=device, dtype=dtype))
            for _ in range(shape.layers)
        ]

    def _advance(self, ids: Tensor, done: int, caches: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Run positions done .. done + ids.shape[1]; returns the last one's logits, float32 [rows, vocab]."""
        target = self._target
        end = done + ids.shape[1]
        rotation = (self._rotation[0][done:end], self._rotation[1][done:end])
        hidden = target.model.embed_tokens(ids)
        for layer, (keys, values) in zip(target.model.layers, caches, strict=True):
            normed = layer.input_layernorm(hidden)
            keys[:, :, done:end], values[:, :, done:end] = layer.self_attn.keys_values(normed, rotation)
            queries = layer.self_attn.queries(normed, rotation).to(keys.dtype)
            mixed = layer.self_attn.attend(queries, keys[:, :, :end], values[:, :, :end], causal=done == 0)
            hidden = hidden + mixed
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        with torch.autocast(hidden.device.type, enabled=False):  # a greedy choice needs float32 logits
            logits = functional.linear(target.model.norm(hidden[:, -1].float()), target.table)
        logits[:, MASK_ID] = -torch.inf
        return logits


def _choose(logits: Tensor, temperatures: Tensor | None, random: torch.Generator | None) -> Tensor:
    greedy = logits.argmax(-1)
    if temperatures is None:
        return greedy
    uniform = torch.rand(logits.shape, generator=random, device=logits.device).clamp_(1e-9, 1 - 1e-6)
    noisy = logits / temperatures.clamp_min(1e-3)[:, None] - (-uniform.log()).log()
    return torch.where(temperatures > 0, noisy.argmax(-1), greedy)
