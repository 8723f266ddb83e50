"""The drafter: a windowed Qwen3-DSpark model over the target's tapped layers.

Owns which keys a draft query sees, the Markov head and the confidence head.  Must see in training exactly what
it sees in an engine: no context row at or behind its anchor, and no more than its window.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.training.layers import Layer, RmsNorm, Rotation, initialise
from demo.training.settings import BLOCK_TOKENS, MASK_ID, DrafterShape, TargetShape


class MarkovHead(nn.Module):
    """A low-rank table of which token follows which: w2(w1[previous]) is added to the logits."""

    def __init__(self, vocab: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, vocab, bias=False)


class ConfidenceHead(nn.Module):
    """The logit that a draft token is accepted, from its hidden state and the previous token's Markov row."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.proj = nn.Linear(size, 1)


class Drafter(nn.Module):
    """Proposes BLOCK_TOKENS tokens behind an anchor in one pass, then left to right through the Markov head."""

    def __init__(self, shape: DrafterShape, target: TargetShape) -> None:
        super().__init__()
        self.shape = shape
        hidden = target.hidden
        self.fc = nn.Linear(hidden * len(shape.taps), hidden, bias=False)
        self.hidden_norm, self.norm = RmsNorm(hidden), RmsNorm(hidden)
        self.layers = nn.ModuleList(
            Layer(hidden, target.heads, target.kv_heads, target.head_dim, shape.mlp)
            for _ in range(shape.layers)
        )
        self.markov_head = MarkovHead(target.vocab, shape.markov_rank)
        self.confidence_head = ConfidenceHead(hidden + shape.markov_rank)
        initialise(self, shape.layers)
        nn.init.normal_(self.markov_head.markov_w1.weight, std=0.5)
        nn.init.zeros_(self.confidence_head.proj.weight)
        nn.init.zeros_(self.confidence_head.proj.bias)
        # The shared head is tied to an embedding of large rows: start with quiet logits.
        self.norm.weight.data.fill_(0.2)

    def forward(
        self, table: Tensor, taps: Tensor, ids: Tensor, anchors: Tensor, rotation: Rotation
    ) -> tuple[Tensor, Tensor]:
        """Hidden states [rows, anchors, block, hidden] and base logits [rows, anchors, block, vocab].

        table: the target's embedding and head [vocab, hidden]; taps [rows, positions, len(taps) * hidden];
        ids int64 [rows, positions]; anchors int64 [rows, anchors], each a position of its row.
        """
        rows, positions = ids.shape
        count = anchors.shape[1]
        steps = torch.arange(BLOCK_TOKENS, device=ids.device)
        block_ids = torch.full((rows, count, BLOCK_TOKENS), MASK_ID, device=ids.device)
        block_ids[..., 0] = ids.gather(1, anchors)
        query_positions = (anchors[..., None] + steps).view(rows, count * BLOCK_TOKENS)
        query_rotation = (rotation[0][query_positions][:, None], rotation[1][query_positions][:, None])
        context_rotation = (rotation[0][:positions], rotation[1][:positions])
        mask = visible_keys(anchors, positions, self.shape.window_tokens)
        context = self.hidden_norm(self.fc(taps))
        hidden = functional.embedding(block_ids.view(rows, -1), table)
        for layer in self.layers:
            normed = layer.input_layernorm(hidden)
            context_keys, context_values = layer.self_attn.keys_values(context, context_rotation)
            block_keys, block_values = layer.self_attn.keys_values(normed, query_rotation)
            hidden = hidden + layer.self_attn.attend(
                layer.self_attn.queries(normed, query_rotation),
                torch.cat([context_keys, block_keys], 2),
                torch.cat([context_values, block_values], 2),
                mask=mask,
            )
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        hidden = self.norm(hidden).view(rows, count, BLOCK_TOKENS, -1)
        return hidden, functional.linear(hidden, table)

    def markov_rows(self, previous: Tensor) -> Tensor:
        """The Markov rows of the previous tokens, [..., rank]."""
        rows: Tensor = self.markov_head.markov_w1(previous)
        return rows

    def markov_bias(self, rows: Tensor) -> Tensor:
        """What those rows add to the logits, [..., vocab]."""
        bias: Tensor = self.markov_head.markov_w2(rows)
        return bias

    def confidence_logit(self, hidden: Tensor, markov_rows: Tensor) -> Tensor:
        """[...], from hidden [..., hidden] and markov_rows [..., rank]."""
        logit: Tensor = self.confidence_head.proj(torch.cat([hidden, markov_rows], -1))[..., 0]
        return logit

    def propose(self, hidden: Tensor, base_logits: Tensor, anchor_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Greedy drafts int64 and their confidence logits, both [rows, anchors, block].

        hidden, base_logits: what `forward` gave; anchor_ids int64 [rows, anchors].
        """
        previous, drafts, confidences = anchor_ids, [], []
        for step in range(BLOCK_TOKENS):
            rows = self.markov_rows(previous)
            confidences.append(self.confidence_logit(hidden[:, :, step], rows))
            previous = (base_logits[:, :, step] + self.markov_bias(rows)).argmax(-1)
            drafts.append(previous)
        return torch.stack(drafts, -1), torch.stack(confidences, -1)


def visible_keys(anchors: Tensor, positions: int, window_tokens: int) -> Tensor:
    """Which keys each draft query sees: bool [rows, 1, anchors * block, positions + anchors * block].

    vLLM's rule for `sliding_attention` layers of a DSpark drafter (model_executor/models/qwen3_dflash.py): causal,
    and a query at position q sees keys in (q - window, q].  Context rows stand at 0 .. positions - 1, the anchor's
    own row does not exist yet, and a block sees itself but no other block.
    """
    count = anchors.shape[1]
    steps = torch.arange(BLOCK_TOKENS, device=anchors.device)
    queries = (anchors[..., None] + steps).flatten(1)
    first = queries - window_tokens + 1
    keys = torch.arange(positions, device=anchors.device)
    context = (keys >= first[..., None]) & (keys < anchors.repeat_interleave(BLOCK_TOKENS, 1)[..., None])
    block = torch.arange(count, device=anchors.device).repeat_interleave(BLOCK_TOKENS)
    step = steps.repeat(count)
    own = (block[:, None] == block) & (step <= step[:, None]) & (step[:, None] - step < window_tokens)
    return torch.cat([context, own.expand(anchors.shape[0], -1, -1)], -1)[:, None]
