"""Refits the confidence head to measured acceptance, when everything else is fixed.

Owns that one linear layer.  Must use training prompts only.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from demo.training.drafter import Drafter
from demo.training.layers import Rotation
from demo.training.settings import BLOCK_TOKENS
from demo.training.target import Target

_ANCHOR_STRIDE = 3
_TEXTS_AT_ONCE = 32
_WEIGHT_PENALTY = 1e-4


@torch.no_grad()
def _samples(
    drafter: Drafter, target: Target, rotation: Rotation, texts: Tensor, first: int
) -> tuple[Tensor, Tensor]:
    """The head's inputs [samples, hidden + rank] and whether that draft was accepted [samples].

    A draft counts only while all drafts before it in its block were accepted: no other is ever judged.
    """
    inputs, accepted = [], []
    for part in texts.split(_TEXTS_AT_ONCE):
        _, taps = target(part, rotation, drafter.shape.taps)
        line = torch.arange(first, part.shape[1] - BLOCK_TOKENS, _ANCHOR_STRIDE, device=part.device)
        anchors = line.expand(len(part), -1)
        hidden, base = drafter(target.table, taps, part, anchors, rotation)
        drafts, _ = drafter.propose(hidden, base, part.gather(1, anchors))
        previous = torch.cat([part.gather(1, anchors)[..., None], drafts[..., :-1]], -1)
        right = drafts == part[:, line[:, None] + torch.arange(1, BLOCK_TOKENS + 1, device=part.device)]
        judged = torch.cat([torch.ones_like(right[..., :1]), right[..., :-1].long().cumprod(-1).bool()], -1)
        inputs.append(torch.cat([hidden, drafter.markov_rows(previous)], -1)[judged])
        accepted.append(right[judged].float())
    return torch.cat(inputs), torch.cat(accepted)


def refit_confidence(
    drafter: Drafter, target: Target, rotation: Rotation, texts: Tensor, first: int
) -> dict[str, Any]:
    """Fit the head by L-BFGS on greedy texts int64 [rows, positions] with prompts of `first` tokens.

    Changes the drafter in place; returns the record: samples and cross-entropy before and after, in nats.
    """
    inputs, accepted = _samples(drafter, target, rotation, texts, first)
    projection = drafter.confidence_head.proj
    weight = projection.weight.detach().clone().requires_grad_()
    bias = projection.bias.detach().clone().requires_grad_()
    solver = torch.optim.LBFGS([weight, bias], lr=1, max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        logits = functional.linear(inputs, weight, bias)[:, 0]
        loss = functional.binary_cross_entropy_with_logits(logits, accepted)
        loss = loss + _WEIGHT_PENALTY * weight.square().sum()
        loss.backward()
        return loss

    before = closure().item()
    solver.step(closure)
    after = closure().item()
    with torch.no_grad():
        projection.weight.copy_(weight.bfloat16().float())
        projection.bias.copy_(bias.bfloat16().float())
    return {"samples": len(inputs), "loss_before": round(before, 4), "loss_after": round(after, 4)}
