"""One block for every request of a round: the parallel pass over the queries, then the Markov loop.

Dense layers run over all requests' queries at once; attention runs request by request, so that one
request's rows (even rows that are not finite) cannot touch another's result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from x86_worker.checkpoint import DrafterConfig, LayerAttention
from x86_worker.drafters.reference.context import ReferenceContext
from x86_worker.drafters.reference.maths import attend, rms_norm, rotary_table, rotate, visible
from x86_worker.drafters.reference.weights import LayerWeights, Weights


@dataclass(frozen=True)
class BlockRequest:
    """A request's context from window_start on, and the token at its end."""

    context: ReferenceContext
    window_start: int
    anchor: int


@dataclass(frozen=True)
class BlockResult:
    """All [requests, positions].  ids: int64, target's numbering.  confidences, margins: float32.

    finite: bool [requests], whether every number behind the request's block was finite.
    """

    ids: Tensor
    confidences: Tensor
    margins: Tensor
    finite: Tensor


def draft_block(
    config: DrafterConfig, weights: Weights, requests: Sequence[BlockRequest], positions: int
) -> BlockResult:
    """The first draft positions of a block of config.block_length, for each request.

    The whole block of queries is always computed: where attention is not causal, the first positions depend
    on it.
    """
    hidden = _hidden_states(config, weights, requests)
    first = 0 if config.sample_from_anchor else 1
    anchors = torch.tensor([request.anchor for request in requests], device=hidden.device)
    return _markov_loop(config, weights, hidden[:, first : first + positions], anchors)


def _hidden_states(config: DrafterConfig, weights: Weights, requests: Sequence[BlockRequest]) -> Tensor:
    """The normed states of every query, [requests, queries, hidden]."""
    device, queries = weights.norm.device, config.queries_per_block
    tokens = [[request.anchor] + [config.mask_token_id] * (queries - 1) for request in requests]
    x = weights.embedding[torch.tensor(tokens, device=device).flatten()]
    ends = torch.tensor([request.context.end for request in requests], device=device)
    positions = ends[:, None] + torch.arange(queries, device=device)
    table = rotary_table(positions.flatten(), config.head_dim, config.rope_theta)
    for index, (layer, rule) in enumerate(zip(weights.layers, config.layers, strict=True)):
        normed = rms_norm(x, layer.input_norm, config.rms_norm_eps)
        q, k, v = _project(config, layer, normed, table)
        mixed = [
            _attend_one(request, index, rule, block, q[rows], k[rows], v[rows])
            for request, block, rows in _by_request(requests, positions)
        ]
        x = x + layer.o(torch.cat(mixed))
        normed = rms_norm(x, layer.post_attention_norm, config.rms_norm_eps)
        x = x + layer.down(torch.nn.functional.silu(layer.gate(normed)) * layer.up(normed))
    return rms_norm(x, weights.norm, config.rms_norm_eps).view(len(requests), queries, -1)


def _project(
    config: DrafterConfig, layer: LayerWeights, x: Tensor, table: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    q = layer.q(x).view(len(x), config.num_attention_heads, config.head_dim)
    k = layer.k(x).view(len(x), config.num_key_value_heads, config.head_dim)
    v = layer.v(x).view(len(x), config.num_key_value_heads, config.head_dim)
    q = rotate(rms_norm(q, layer.q_norm, config.rms_norm_eps), table)
    k = rotate(rms_norm(k, layer.k_norm, config.rms_norm_eps), table)
    return q, k, v


def _by_request(
    requests: Sequence[BlockRequest], positions: Tensor
) -> list[tuple[BlockRequest, Tensor, slice]]:
    """Each request with its queries' positions and their rows in the flattened batch."""
    queries = positions.shape[1]
    return [
        (request, positions[index], slice(index * queries, (index + 1) * queries))
        for index, request in enumerate(requests)
    ]


def _attend_one(
    request: BlockRequest, layer: int, rule: LayerAttention, block: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    """One request's queries over its context and their own block.  block: the queries' positions."""
    end, first = request.context.end, request.window_start
    if rule.context_rows is not None:
        first = max(first, end - rule.context_rows)
    context_k, context_v = request.context.rows(layer, first)
    keys = torch.cat((torch.arange(first, end, device=block.device), block))
    seen = visible(block, keys, rule)
    return attend(q, torch.cat((context_k, k)), torch.cat((context_v, v)), seen)


def _markov_loop(config: DrafterConfig, weights: Weights, hidden: Tensor, anchors: Tensor) -> BlockResult:
    """Left to right: each position's logits get a bias from the token before it.  hidden: [requests, n,
    hidden].
    """
    base = weights.head(hidden) * config.logit_scale
    previous = anchors
    finite = torch.isfinite(base).flatten(1).all(1)
    ids, embeddings, margins = [], [], []
    for step in range(hidden.shape[1]):
        embedding = weights.markov_embedding[previous]
        logits = base[:, step] + weights.markov_head(embedding) * config.logit_scale
        finite &= torch.isfinite(logits).all(1)
        best = logits.argmax(-1)
        top = logits.float().topk(2).values
        previous = best if weights.draft_to_target is None else weights.draft_to_target[best]
        ids.append(previous)
        embeddings.append(embedding)
        margins.append(top[:, 0] - top[:, 1])
    confidences = _confidences(config, weights, hidden, torch.stack(embeddings, 1))
    finite &= torch.isfinite(confidences).all(1)
    return BlockResult(torch.stack(ids, 1), confidences, torch.stack(margins, 1), finite)


def _confidences(config: DrafterConfig, weights: Weights, hidden: Tensor, embeddings: Tensor) -> Tensor:
    """Probability of acceptance by position, float32 [requests, n]; 1 without a trained head."""
    if weights.confidence is None:
        return torch.ones(hidden.shape[:2], dtype=torch.float32, device=hidden.device)
    features = torch.cat((hidden, embeddings), -1) if config.confidence_with_markov else hidden
    return torch.sigmoid(weights.confidence(features.float()).squeeze(-1))
