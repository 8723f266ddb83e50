"""What is minimised: the target's next-token loss and the drafter's loss.

Owns the losses alone; all work on fixed shapes, so that a step can be captured as a graph.
"""

import torch
from torch import Tensor
from torch.nn import functional

from demo.training.drafter import Drafter
from demo.training.layers import Rotation
from demo.training.optim import Loss
from demo.training.settings import BLOCK_TOKENS, Settings
from demo.training.target import Target


def next_token_loss(target: Target, rotation: Rotation) -> Loss:
    """Cross-entropy of each row's next tokens, in nats.  Batch: ids int64 [rows, context + 1]."""

    def loss(ids: Tensor) -> tuple[Tensor, ...]:
        logits, _ = target(ids[:, :-1], rotation)
        return (functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten()),)

    return loss


def at_positions(values: Tensor, positions: Tensor) -> Tensor:
    """values [rows, all, ...] at positions [rows, anchors, block] -> [rows, anchors, block, ...]."""
    rows = torch.arange(values.shape[0], device=values.device)[:, None, None]
    return values[rows, positions]


def drafter_loss(drafter: Drafter, target: Target, rotation: Rotation, settings: Settings) -> Loss:
    """How far the drafts are from the text and from the target, and how wrong the confidence is.

    Per draft position k, weighed by exp(-k / decay): cross-entropy to the token that follows in the text plus half
    the total variation to the target's distribution.  The Markov head sees the text's tokens.  The confidence
    learns, from detached inputs, whether the draft is the target's choice.
    Batch: ids int64 [rows, context + 1], anchors int64 [rows, anchors].
    Figures: loss, cross-entropy, variation, confidence loss, mean accepted run, and the hit rate by position.
    """

    def loss(ids: Tensor, anchors: Tensor) -> tuple[Tensor, ...]:
        steps = torch.arange(BLOCK_TOKENS, device=ids.device)
        decay = torch.exp(-steps / settings.position_decay)
        with torch.no_grad():
            target_logits, taps = target(ids[:, :-1], rotation, drafter.shape.taps)
        positions = anchors[..., None] + steps
        hidden, base = drafter(target.table.detach(), taps, ids[:, :-1], anchors, rotation)
        markov = drafter.markov_rows(at_positions(ids, positions))
        logits = (base + drafter.markov_bias(markov)).float()
        wanted = at_positions(target_logits, positions).float()
        logs = logits.log_softmax(-1)
        entropy = -logs.gather(-1, at_positions(ids, positions + 1)[..., None])[..., 0]
        variation = 0.5 * (logs.exp() - wanted.softmax(-1)).abs().sum(-1)
        hit = (logits.argmax(-1) == wanted.argmax(-1)).float()
        confidence = drafter.confidence_logit(hidden.detach(), markov.detach()).float()
        confidence_loss = functional.binary_cross_entropy_with_logits(confidence, hit)
        drafts = entropy + settings.variation_weight * variation
        main = (drafts.mean((0, 1)) * decay).sum() / decay.sum()
        return (
            main + confidence_loss,
            entropy.mean(),
            variation.mean(),
            confidence_loss,
            hit.cumprod(-1).sum(-1).mean(),
            *hit.mean((0, 1)).unbind(),
        )

    return loss
