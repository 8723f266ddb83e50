"""Acceptance of a drafter on its target's texts, and its confidence: in plain torch, without an engine.

Owns the counting rules that the engine's measurement shares.  Must measure on held-out prompts, in float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from demo.training.drafter import Drafter
from demo.training.layers import Rotation
from demo.training.repeats import loop_starts, repeated
from demo.training.settings import BLOCK_TOKENS
from demo.training.target import Target

_ANCHORS_AT_ONCE = 64


@dataclass(frozen=True)
class Round:
    """One verification round: its text, the anchor's position in it, and how many drafts were accepted."""

    row: int
    anchor: int
    accepted: int


@torch.no_grad()
def accepted_everywhere(
    drafter: Drafter, target: Target, rotation: Rotation, texts: Tensor, first: int
) -> tuple[Tensor, Tensor]:
    """Drafts at every anchor from `first` on, against greedy texts int64 [rows, positions].

    Returns accepted int64 [rows, anchors] and confidence in 0..1 [rows, anchors, block].
    """
    _, taps = target(texts, rotation, drafter.shape.taps)
    last = texts.shape[1] - BLOCK_TOKENS
    steps = torch.arange(1, BLOCK_TOKENS + 1, device=texts.device)
    accepted, confidences = [], []
    for start in range(first, last, _ANCHORS_AT_ONCE):
        anchors = torch.arange(start, min(start + _ANCHORS_AT_ONCE, last), device=texts.device)
        hidden, base = drafter(target.table, taps, texts, anchors.expand(len(texts), -1), rotation)
        drafts, confidence = drafter.propose(hidden, base, texts[:, anchors])
        right = drafts == texts[:, anchors[:, None] + steps]
        accepted.append(right.long().cumprod(-1).sum(-1))
        confidences.append(confidence.sigmoid())
    return torch.cat(accepted, 1), torch.cat(confidences, 1)


def rounds_of(accepted: Tensor, first: int) -> list[Round]:
    """The rounds an engine would make: each starts behind the tokens that the one before settled."""
    rounds = []
    for row, counts in enumerate(accepted.tolist()):
        at = 0
        while at < len(counts):
            rounds.append(Round(row, first + at, counts[at]))
            at += counts[at] + 1
    return rounds


def figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """Rounds, mean accepted drafts a round, and the share of rounds that accepted each position."""
    count = len(rounds)
    if not count:
        return {"rounds": 0, "accepted_per_round": None, "accepted_by_position": None}
    by_position = [sum(item.accepted > step for item in rounds) / count for step in range(BLOCK_TOKENS)]
    return {
        "rounds": count,
        "accepted_per_round": round(sum(by_position), 3),
        "accepted_by_position": [round(share, 3) for share in by_position],
    }


def fresh_rounds(rounds: Sequence[Round], texts: np.ndarray[Any, Any]) -> list[Round]:
    """The rounds whose anchor ends no window that occurred before; texts int64 [rows, positions]."""
    again = repeated(texts)
    return [item for item in rounds if not again[item.row, item.anchor]]


def summary(rounds: Sequence[Round], texts: np.ndarray[Any, Any], first: int) -> dict[str, Any]:
    """Three figures for greedy texts int64 [rows, positions] whose prompts end at `first`.

    all: every round; before_loops: without looping tails; fresh: only rounds whose anchor repeats nothing.
    """
    again = repeated(texts)
    starts = loop_starts(texts, first)
    return {
        "all": figures(rounds),
        "before_loops": figures([item for item in rounds if item.anchor < starts[item.row]]),
        "fresh": figures(fresh_rounds(rounds, texts)),
        "repeated_share": round(float(again[:, first:].mean()), 3),
        "looping_texts": int((starts < texts.shape[1]).sum()),
        "looping_share": round(float((texts.shape[1] - starts).sum() / texts[:, first:].size), 3),
    }


def calibration(accepted: Tensor, confidences: Tensor, bins: int = 10) -> dict[str, float]:
    """How well confidence predicts acceptance of a draft whose predecessors were accepted.

    Expected calibration error over equal bins, and the mean of both.
    """
    steps = torch.arange(BLOCK_TOKENS, device=accepted.device)
    reached = accepted[..., None] >= steps
    hit = (accepted[..., None] > steps)[reached].double()
    guess = confidences[reached].double()
    which = (guess * bins).long().clamp(max=bins - 1)
    error = 0.0
    for index in range(bins):
        inside = which == index
        if inside.any():
            error += inside.double().mean().item() * abs((hit[inside] - guess[inside]).mean().item())
    return {
        "expected_calibration_error": round(error, 4),
        "mean_confidence": round(guess.mean().item(), 4),
        "mean_acceptance": round(hit.mean().item(), 4),
    }
