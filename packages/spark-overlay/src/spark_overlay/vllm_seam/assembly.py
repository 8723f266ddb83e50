"""Puts one rank's speculator together: facts, ranks, words, rank 0's half, policy.

Owns nothing afterwards.  Only rank 0 gets a drafter, buffers to gather into and a stats file; the other ranks
hold the words alone.
"""

import os
from typing import Any

import torch

import spark_overlay
from spark_overlay.decision import DecisionLayout
from spark_overlay.gather import TapGather
from spark_overlay.interface import EngineFacts
from spark_overlay.rounds import RemoteDrafter
from spark_overlay.settings import PREFIX, Settings
from spark_overlay.vllm_seam.depth import decisive_costs, is_adaptive, takes_remote_confidences
from spark_overlay.vllm_seam.facts import engine_facts
from spark_overlay.vllm_seam.policies import Capacity, Policy, RemoteRounds, Resilience, Shadow
from spark_overlay.vllm_seam.ranks import Ranks, check_alike, ranks_of
from spark_overlay.vllm_seam.speculators import RemoteAndLocal, RemoteOnly
from spark_overlay.vllm_seam.startup import on_up
from spark_overlay.vllm_seam.step import Lead
from spark_overlay.vllm_seam.words import Words


def assemble(
    vllm_config: Any,
    device: torch.device,
    settings: Settings,
    version: str,
    remote_only: type[RemoteOnly],
    remote_and_local: type[RemoteAndLocal],
) -> RemoteOnly | RemoteAndLocal:
    """This rank's speculator, its drafter not yet started.

    remote_only, remote_and_local: the version's classes.  Raises SeamError on a shape that we cannot state, and
    on ranks that are not set alike.
    """
    facts = engine_facts(vllm_config)
    ranks = ranks_of(vllm_config)
    check_alike(ranks, decisive(settings, vllm_config))
    lead = _lead(vllm_config, device, settings, facts) if ranks.rank == 0 else None
    policy = _policy(vllm_config, device, settings, ranks, lead)
    made = (remote_only if settings.policy == "capacity" else remote_and_local)(vllm_config, device)
    made.bind(policy, settings.policy, on_up(settings, policy.rounds, version))
    if is_adaptive(vllm_config.speculative_config) and takes_remote_confidences(settings):
        policy.rounds.confidences = made.draft_token_confidence_probs
    return made


def decisive(settings: Settings, vllm_config: Any) -> dict[str, str]:
    """What every rank must be set to alike: it decides which collectives a step has, their size, and how many drafts
    are verified.
    """
    return {
        f"{PREFIX}_POLICY": settings.policy,
        f"{PREFIX}_SHADOW_USE": settings.shadow_use,
        f"{PREFIX}_ON_FAIL": settings.on_fail,
        **decisive_costs(vllm_config.speculative_config, settings, os.environ),
        "num_speculative_tokens": str(vllm_config.speculative_config.num_speculative_tokens),
        "max_num_seqs": str(vllm_config.scheduler_config.max_num_seqs),
        "the version of spark-overlay": spark_overlay.__version__,
    }


def _lead(vllm_config: Any, device: torch.device, settings: Settings, facts: EngineFacts) -> Lead:
    model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
    taps = TapGather(
        max_requests=scheduler.max_num_seqs,
        max_tokens=scheduler.max_num_batched_tokens,
        max_drafts=vllm_config.speculative_config.num_speculative_tokens,
        tap_count=facts.tap_count,
        hidden_size=model.get_hidden_size(),
        dtype=model.dtype,
        device=device,
        window=facts.window,
    )
    uses_remote = settings.policy != "shadow" or settings.shadow_use == "remote"
    return Lead(RemoteDrafter(settings, facts), taps, model.max_model_len, verifies_remote=uses_remote)


def _policy(
    vllm_config: Any, device: torch.device, settings: Settings, ranks: Ranks, lead: Lead | None
) -> Policy:
    drafts = vllm_config.speculative_config.num_speculative_tokens
    words = Words(DecisionLayout(vllm_config.scheduler_config.max_num_seqs, drafts), device)
    rounds = RemoteRounds(words, ranks, lead, raises=settings.on_fail == "raise")
    if settings.policy == "capacity":
        return Capacity(rounds)
    if settings.policy == "resilience":
        return Resilience(rounds)
    return Shadow(rounds, uses_remote=settings.shadow_use == "remote")
