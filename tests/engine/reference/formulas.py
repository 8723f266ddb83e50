"""Qwen3-DSpark written out once more: float64 numpy, one query and one key at a time, straight from
config.json.

Shares no code and no idea with the reference drafter: no cached keys (each block starts again from the
taps), no batches, no masks (a key is visited or it is not), rotation as complex numbers.  Slow on purpose.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

Vector = np.ndarray


@dataclass(frozen=True)
class Block:
    """N values each."""

    ids: list[int]
    confidences: list[float]
    margins: list[float]


class Formulas:
    """One drafter with its target.  windows and causal, one per layer, are stated by the test, not parsed."""

    def __init__(
        self, drafter: Path, target: Path, windows: list[int | None], causal: list[bool], block_length: int
    ) -> None:
        self.config: dict[str, Any] = json.loads((drafter / "config.json").read_text())
        wide = {
            name: array.astype(np.float64) for name, array in load_file(drafter / "model.safetensors").items()
        }
        shared = {
            name: array.astype(np.float64) for name, array in load_file(target / "model.safetensors").items()
        }
        self.tensors = wide
        self.embedding = wide.get("embed_tokens.weight", shared["model.embed_tokens.weight"])
        tied = shared.get("lm_head.weight", shared["model.embed_tokens.weight"])
        self.head = wide.get("lm_head.weight", tied)
        self.windows, self.causal, self.block_length = windows, causal, block_length
        self.heads, self.kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        self.head_dim = self.config["head_dim"]

    def block(self, taps: dict[int, Vector], anchor: int, anchor_position: int) -> Block:
        """Drafts after an anchor.  taps: by absolute position, those that the drafter may use."""
        context = {
            position: self.norm(self.tensors["fc.weight"] @ row.astype(np.float64), "hidden_norm.weight")
            for position, row in taps.items()
        }
        fill_in = not self.config.get("sample_from_anchor", True)
        tokens = [anchor] + [self.config["mask_token_id"]] * (self.block_length - 1 + fill_in)
        states = {anchor_position + index: self.embedding[token] for index, token in enumerate(tokens)}
        for layer in range(self.config["num_hidden_layers"]):
            states = self.layer(layer, context, states)
        final = [self.norm(states[position], "norm.weight") for position in sorted(states)]
        return self.markov(final[fill_in:], anchor)

    def layer(self, layer: int, context: dict[int, Vector], states: dict[int, Vector]) -> dict[int, Vector]:
        """One decoder layer for every query of the block."""
        normed = {p: self.norm(x, f"layers.{layer}.input_layernorm.weight") for p, x in states.items()}
        keys = {p: self.heads_of(layer, "k", c, p) for p, c in (context | normed).items()}
        values = {p: self.heads_of(layer, "v", c, p) for p, c in (context | normed).items()}
        result = {}
        for query, x in states.items():
            seen = [key for key in sorted(keys) if self.sees(layer, query, key)]
            q = self.heads_of(layer, "q", normed[query], query)
            mixed = []
            for head in range(self.heads):
                group = head // (self.heads // self.kv_heads)
                scores = np.array([q[head] @ keys[key][group] for key in seen]) / np.sqrt(self.head_dim)
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                mixed.append(sum(w * values[key][group] for w, key in zip(weights, seen, strict=True)))
            after = x + self.linear(f"layers.{layer}.self_attn.o_proj", np.concatenate(mixed))
            inner = self.norm(after, f"layers.{layer}.post_attention_layernorm.weight")
            gate = self.linear(f"layers.{layer}.mlp.gate_proj", inner)
            up = self.linear(f"layers.{layer}.mlp.up_proj", inner)
            hidden = gate / (1 + np.exp(-gate)) * up
            result[query] = after + self.linear(f"layers.{layer}.mlp.down_proj", hidden)
        return result

    def sees(self, layer: int, query: int, key: int) -> bool:
        """A window W reaches W-1 keys back, and as far forward where the layer is not causal."""
        window = self.windows[layer]
        if self.causal[layer] and key > query:
            return False
        return window is None or query - window < key < query + window

    def heads_of(self, layer: int, which: str, x: Vector, position: int) -> list[Vector]:
        """Query, key or value heads of one row; queries and keys normed and rotated to their position."""
        flat = self.linear(f"layers.{layer}.self_attn.{which}_proj", x)
        parts = np.split(flat, len(flat) // self.head_dim)
        if which == "v":
            return parts
        return [
            self.rotate(self.norm(part, f"layers.{layer}.self_attn.{which}_norm.weight"), position)
            for part in parts
        ]

    def rotate(self, x: Vector, position: int) -> Vector:
        """Pairs (i, i + head_dim/2) as complex numbers, turned by position * theta^(-2i/head_dim)."""
        half = self.head_dim // 2
        turns = np.exp(1j * position * self.config["rope_theta"] ** (-2.0 * np.arange(half) / self.head_dim))
        turned = (x[:half] + 1j * x[half:]) * turns
        return np.concatenate((turned.real, turned.imag))

    def markov(self, final: list[Vector], anchor: int) -> Block:
        """Left to right over the predicting queries' final states."""
        block, previous = Block([], [], []), anchor
        for h in final[: self.block_length]:
            e = self.tensors["markov_head.markov_w1.weight"][previous]
            logits = self.head @ h + self.tensors["markov_head.markov_w2.weight"] @ e
            best, second = np.argsort(logits)[::-1][:2]
            previous = int(best)
            if "d2t" in self.tensors:
                previous += int(self.tensors["d2t"][best])
            features = np.concatenate((h, e)) if self.config["confidence_head_with_markov"] else h
            block.ids.append(previous)
            block.margins.append(float(logits[best] - logits[second]))
            block.confidences.append(
                float(1 / (1 + np.exp(-self.linear("confidence_head.proj", features)[0])))
            )
        return block

    def linear(self, name: str, x: Vector) -> Vector:
        """W x, plus the bias where there is one."""
        return self.tensors[f"{name}.weight"] @ x + self.tensors.get(f"{name}.bias", 0.0)

    def norm(self, x: Vector, weight: str) -> Vector:
        """RMSNorm."""
        return x / np.sqrt(np.mean(x * x) + self.config["rms_norm_eps"]) * self.tensors[weight]
