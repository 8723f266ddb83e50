"""One measured request, and whether it counts.

Between two readings of /metrics the engine must have done our request and nothing else: its own counters of tokens say
so.  What the stream and the counters say of the same steps is compared, so that neither is believed alone.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from spark_overlay.bench.errors import BenchRefused
from spark_overlay.bench.plan import Turn
from spark_overlay.http_api.api import Asked, EngineApi
from spark_overlay.http_api.counters import EngineCounters, observe
from spark_overlay.http_api.replies import Streamed

SETTLE_S = 10.0
"""vLLM counts a step after it has sent the step's tokens, in the same breath; a busy host takes longer."""
POLL_S = 0.02
SEEN_SHARE_MIN = 0.9
"""Of the steps that the engine counted, so many must have come as chunks of their own for their gaps to be steps."""


@dataclass(frozen=True)
class Sample:
    """What one request showed.  Times in seconds.

    step_p50_s: median gap between chunks; None where too few steps came as chunks of their own.  steps: decode steps by
    the engine's count; step_mean_s: their mean by its clock.  seen_steps: gaps between chunks.  drafts: verified
    blocks, draft_tokens in them, and accepted_tokens of those.
    """

    turn: Turn
    prompt_tokens: int
    generated_tokens: int
    first_token_s: float
    step_p50_s: float | None
    steps: int
    seen_steps: int
    step_mean_s: float
    decode_tokens_per_s: float
    drafts: int
    draft_tokens: int
    accepted_tokens: int


def measure(
    api: EngineApi, model: str, turn: Turn, asked: Asked, pause: Callable[[float], None] = time.sleep
) -> Sample:
    """Ask, and judge what came.  Raises BenchRefused where it does not count, and EngineApiError."""
    before = require_idle(api)
    streamed = api.stream(model, asked)
    counted = settled(api, before, streamed.usage.completion_tokens, pause)
    _check(asked, streamed, counted)
    return _sample(turn, streamed, counted)


def require_idle(api: EngineApi) -> EngineCounters:
    """The counters of an engine without requests.  Raises BenchRefused, and EngineApiError."""
    load, counters = observe(api)
    if not load.idle:
        raise BenchRefused(
            f"the engine at {api.address} has other requests, {load}: they and the bench would slow each other down"
        )
    return counters


def settled(
    api: EngineApi, before: EngineCounters, tokens: int, pause: Callable[[float], None] = time.sleep
) -> EngineCounters:
    """What the engine counted since, once it is idle and has counted that many generated tokens.

    Raises BenchRefused where it counts more or does not come to it, and EngineApiError.
    """
    end_s = time.monotonic() + SETTLE_S
    while True:
        load, counters = observe(api)
        counted = counters.since(before)
        if counted.generation_tokens > tokens or counted.generation_tokens < 0:
            raise BenchRefused(
                f"the engine at {api.address} counted {counted.generation_tokens:.0f} generated tokens where the bench "
                f"had {tokens}: it served others, or began anew"
            )
        if load.idle and counted.generation_tokens == tokens:
            return counted
        if time.monotonic() > end_s:
            raise BenchRefused(
                f"{SETTLE_S:g} s after a completion of {tokens} tokens the engine at {api.address} has counted "
                f"{counted.generation_tokens:.0f} of them and has {load} requests"
            )
        pause(POLL_S)


def _check(asked: Asked, streamed: Streamed, counted: EngineCounters) -> None:
    usage = streamed.usage
    for what, wanted, got in (
        ("prompt tokens", len(asked.prompt), usage.prompt_tokens),
        ("generated tokens", asked.max_tokens, usage.completion_tokens),
        ("prompt tokens by its metrics", len(asked.prompt), counted.prompt_tokens),
    ):
        if wanted != got:
            raise BenchRefused(f"{wanted} {what} were asked for, and the engine says {got:.0f}")
    hits = max(counted.prefix_cache_hits, usage.cached_tokens or 0)
    if hits:
        raise BenchRefused(
            f"{hits:.0f} tokens of a new prompt came from the prefix cache: its time to first token says nothing"
        )
    if counted.preemptions:
        raise BenchRefused(
            f"the engine preempted the one request that it had: {usage.prompt_tokens} prompt tokens are too many for "
            "its KV cache"
        )
    if counted.decode_steps < 1 or counted.decode_s <= 0:
        raise BenchRefused("the engine's metrics count no decode step (vllm:inter_token_latency_seconds)")


def _sample(turn: Turn, streamed: Streamed, counted: EngineCounters) -> Sample:
    times = [chunk.at_s for chunk in streamed.chunks]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    steps = round(counted.decode_steps)
    first_tokens = streamed.chunks[0].tokens or 1
    return Sample(
        turn=turn,
        prompt_tokens=streamed.usage.prompt_tokens,
        generated_tokens=streamed.usage.completion_tokens,
        first_token_s=streamed.first_token_s,
        step_p50_s=statistics.median(gaps) if len(gaps) >= SEEN_SHARE_MIN * steps else None,
        steps=steps,
        seen_steps=len(gaps),
        step_mean_s=counted.decode_s / counted.decode_steps,
        decode_tokens_per_s=(streamed.usage.completion_tokens - first_tokens) / counted.decode_s,
        drafts=round(counted.drafts),
        draft_tokens=round(counted.draft_tokens),
        accepted_tokens=round(counted.accepted_tokens),
    )
