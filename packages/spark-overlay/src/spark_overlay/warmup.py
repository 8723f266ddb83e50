"""Warms an engine by short and long prompts, and makes sure that it did what it was asked.

What an engine compiles, captures or loads at its first request of a kind costs those who come first; after this it is
us.  Owns what is asked and what must come back; knows no terminal.  One request at a time, each in bounded time.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spark_overlay.http_api.api import COMPLETIONS, MODELS, Asked, EngineApi
from spark_overlay.http_api.errors import EngineTimedOut
from spark_overlay.http_api.prompts import PromptMaker
from spark_overlay.http_api.replies import Model, Streamed

SHORT_TOKENS, MIDDLE_TOKENS, LONG_TOKENS_MAX = 64, 2048, 32768
"""By default: less than a step's worth of tokens, about one, and many, which chunked prefill cuts up."""


class WarmupFailed(Exception):
    """The engine did not do what it was asked, or cannot be asked so; the text is one sentence."""


@dataclass(frozen=True)
class Plan:
    """prompt_tokens: of each request, in order.  generate: tokens of each completion.  timeout_s: for all of them."""

    model: Model
    prompt_tokens: tuple[int, ...]
    generate: int
    timeout_s: float


@dataclass(frozen=True)
class Warmed:
    """One request that came back as it should.  Times in seconds since it was sent."""

    prompt_tokens: int
    generated_tokens: int
    first_token_s: float
    total_s: float


def plan(model: Model, prompt_tokens: Sequence[int] | None, generate: int, timeout_s: float) -> Plan:
    """What to ask.  prompt_tokens: None: by the engine's longest sequence.  Raises WarmupFailed."""
    longest = None if model.max_model_len is None else model.max_model_len - generate
    if prompt_tokens is None:
        if longest is None:
            raise WarmupFailed(f"the engine does not tell max_model_len in {MODELS}: --tokens must be given")
        wanted = (SHORT_TOKENS, MIDDLE_TOKENS, min(longest, LONG_TOKENS_MAX))
        prompt_tokens = sorted({count for count in wanted if count <= longest and count > 0})
    if longest is not None and (not prompt_tokens or max(prompt_tokens) > longest):
        most = max(prompt_tokens, default=1)
        raise WarmupFailed(
            f"{most} prompt tokens and {generate} generated ones are more than the {model.max_model_len} tokens of "
            f"the engine's longest sequence (max_model_len)"
        )
    return Plan(model, tuple(prompt_tokens), generate, timeout_s)


def warm(
    api: EngineApi,
    made: Plan,
    seed: str | None = None,
    *,
    on_begin: Callable[[int], None] = lambda tokens: None,
) -> Iterator[Warmed]:
    """Each request of the plan, once it came back.  seed: of the prompts; None: new ones each time.

    on_begin: called with the prompt's tokens before each.  Raises WarmupFailed and EngineApiError.
    """
    end_s = time.monotonic() + made.timeout_s
    salt = secrets.token_hex(16)
    prompts = PromptMaker(lambda text: api.tokenize(made.model.name, text), seed or salt)
    for tokens in made.prompt_tokens:
        on_begin(tokens)
        prompt = prompts.exact(f"warmup-{tokens}", tokens)
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise EngineTimedOut(f"{api.url(COMPLETIONS)}: not warm within {made.timeout_s:g} s")
        asked = Asked(prompt, made.generate, left_s, cache_salt=salt)
        start_s = time.monotonic()
        streamed = api.stream(made.model.name, asked)
        total_s = time.monotonic() - start_s
        check_generated(asked, streamed)
        yield Warmed(tokens, streamed.usage.completion_tokens, streamed.first_token_s, total_s)


def check_generated(asked: Asked, streamed: Streamed) -> None:
    """Raise WarmupFailed unless the engine read the whole prompt and generated exactly what was asked for."""
    usage, prompt_tokens = streamed.usage, len(asked.prompt)
    told = [chunk.tokens for chunk in streamed.chunks if chunk.tokens is not None]
    if usage.prompt_tokens != prompt_tokens:
        raise WarmupFailed(f"a prompt of {prompt_tokens} tokens was counted as {usage.prompt_tokens}")
    if usage.completion_tokens != asked.max_tokens:
        raise WarmupFailed(
            f"{asked.max_tokens} tokens were asked for and {usage.completion_tokens} generated "
            f"(finish_reason {streamed.finish_reason}, prompt of {prompt_tokens} tokens)"
        )
    if len(told) == len(streamed.chunks) and sum(told) != usage.completion_tokens:
        raise WarmupFailed(
            f"the stream brought {sum(told)} tokens, and its usage says {usage.completion_tokens}"
        )
    if usage.cached_tokens:
        raise WarmupFailed(
            f"{usage.cached_tokens} tokens of the prompt of {prompt_tokens} came from the prefix cache, though the "
            "prompt is new"
        )
