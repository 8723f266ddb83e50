"""Acceptance of a drafter on its target's texts, and its confidence: in plain torch, without an engine.

Owns what a round would accept; `counting` owns the figures made of it.  Must measure in float32.
"""

import torch
from torch import Tensor

from demo.training.counting import Round
from demo.training.drafter import Drafter
from demo.training.layers import Rotation
from demo.training.settings import BLOCK_TOKENS
from demo.training.target import Target

_ANCHORS_AT_ONCE = 64


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
