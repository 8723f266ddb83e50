"""Where an embedding stands: which rank of which model, and how many tokens a step may have.  Asks vLLM."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engram_remote.vllm_seam.refusals import refuse
from engram_remote.vllm_seam.versions import COMMON


@dataclass(frozen=True)
class Place:
    """rank: the head shard, the tensor-parallel rank.  tokens_max: most tokens of one lookup.

    layers: the model's Engram layer by its head sizes, which are primes that no two layers share.  device: of the ids.
    """

    rank: int
    ranks: int
    tokens_max: int
    layers: Mapping[tuple[int, ...], int]
    device: Any


def engine_place() -> Place:
    """The place of a model that vLLM constructs in this moment.  Raises SeamError on what cannot be served."""
    import torch
    from vllm.config import get_current_vllm_config
    from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size

    config = get_current_vllm_config()
    refuse(config)
    layout = importlib.import_module(COMMON).EngramLayout.from_config(config.model_config.hf_text_config)
    cuda = torch.cuda.is_available()
    return Place(
        rank=get_tensor_model_parallel_rank(),
        ranks=get_tensor_model_parallel_world_size(),
        tokens_max=config.scheduler_config.max_num_batched_tokens,
        layers=layers_of(layout.layer_ids, layout.primes),
        device=torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu"),
    )


def layers_of(
    layer_ids: tuple[int, ...], primes: tuple[tuple[tuple[int, ...], ...], ...]
) -> dict[tuple[int, ...], int]:
    """Layers by head sizes, from the fields of stock's EngramLayout: primes[layer][n-gram size][head]."""
    return {
        tuple(size for order in per_layer for size in order): layer
        for layer, per_layer in zip(layer_ids, primes, strict=True)
    }
