"""The order of a run: each turn in its arm, each prompt new, and a refusal instead of figures where ON was not ON."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence

from spark_overlay.bench.arms import Arms
from spark_overlay.bench.errors import BenchRefused
from spark_overlay.bench.plan import ArmName, Plan, Turn, turns
from spark_overlay.bench.sample import Sample, measure, require_idle, settled
from spark_overlay.http_api.api import COMPLETIONS, Asked, EngineApi
from spark_overlay.http_api.counters import EngineCounters
from spark_overlay.http_api.errors import EngineTimedOut
from spark_overlay.http_api.prompts import PromptMaker

SETTLE_TOKENS = 24
SETTLE_PROMPT_TOKENS = 48
SETTLE_PAUSE_S = 0.25
SETTLE_S = 60.0
"""After a resume the worker is connected to anew; an engine notices only in rounds, so short requests make some."""
ACCEPTED_SHARE_MIN = 0.02
"""Of the drafts in ON.  In a failed round vLLM verifies tokens of id 0; one in some hundred of those is right by
chance."""
OFF_SHARE_MAX = 0.5
"""While remote drafting is paused the share of accepted drafts must fall below this part of what it is in ON."""


class Run:
    """One run.  model: of all engines.  pause: sleeps; a test brings its own."""

    def __init__(
        self, arms: Arms, model: str, plan: Plan, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._arms, self._model, self._plan, self._pause = arms, model, plan, pause
        self._salt = secrets.token_hex(16)
        self._end_s = time.monotonic() + plan.timeout_s
        self._prompts: dict[int, PromptMaker] = {}
        self._settles = 0
        self._entered: ArmName | None = None

    def samples(self, on_turn: Callable[[Turn], None] = lambda turn: None) -> Iterator[Sample]:
        """Each as it was measured.  Raises BenchRefused and EngineApiError."""
        for turn in turns(self._plan):
            on_turn(turn)
            api = self._enter(turn.arm)
            for other in self._arms.apis():
                require_idle(other)
            asked = self._asked(api, turn.name, turn.context, self._plan.generate)
            sample = measure(api, self._model, turn, asked, self._pause)
            self._arms.judge(sample)
            yield sample
        api = self._enter("on")
        self._arms.close(lambda: self._unmeasured(api))

    def _enter(self, arm: ArmName) -> EngineApi:
        """The engine to ask.  After each change one request is not measured, in ON as many as it takes until drafts are
        accepted."""
        api = self._arms.enter(arm)
        if arm == self._entered:
            return api
        self._entered = arm
        end_s = time.monotonic() + SETTLE_S
        drafts = accepted = 0.0
        while True:
            counted = self._unmeasured(api)
            if arm == "off" or counted.accepted_tokens > ACCEPTED_SHARE_MIN * counted.draft_tokens:
                return api
            if not counted.speculative:
                raise BenchRefused(
                    f"the engine at {api.address} counts no drafts (vllm:spec_decode_num_drafts): it runs without "
                    "speculative decoding"
                )
            drafts, accepted = drafts + counted.draft_tokens, accepted + counted.accepted_tokens
            if time.monotonic() > end_s:
                raise BenchRefused(
                    f"the remote is not in use: in {SETTLE_S:g} s of requests with drafting on, the engine at "
                    f"{api.address} accepted {accepted:.0f} of {drafts:.0f} drafts"
                )
            self._pause(SETTLE_PAUSE_S)

    def _unmeasured(self, api: EngineApi) -> EngineCounters:
        """A short request, and what the engine counted of it."""
        before = require_idle(api)
        self._settles += 1
        asked = self._asked(api, f"settle-{self._settles}", SETTLE_PROMPT_TOKENS, SETTLE_TOKENS)
        streamed = api.stream(self._model, asked)
        return settled(api, before, streamed.usage.completion_tokens, self._pause)

    def _asked(self, api: EngineApi, name: str, tokens: int, generate: int) -> Asked:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise EngineTimedOut(f"{api.url(COMPLETIONS)}: not done within {self._plan.timeout_s:g} s")
        maker = self._prompts.setdefault(
            id(api), PromptMaker(lambda text: api.tokenize(self._model, text), self._plan.seed)
        )
        return Asked(maker.exact(name, tokens), generate, left_s, cache_salt=self._salt)


def require_used(samples: Sequence[Sample], *, paused: bool) -> None:
    """Raise BenchRefused where ON had hardly an accepted draft in a context, or where pausing changed nothing.

    paused: whether OFF is the same engine paused, in a policy that then has no drafts at all.
    """
    for context in {sample.turn.context for sample in samples}:
        shares = {}
        for arm in ("off", "on"):
            own = [sample for sample in samples if (sample.turn.context, sample.turn.arm) == (context, arm)]
            drafted = sum(sample.draft_tokens for sample in own)
            shares[arm] = sum(sample.accepted_tokens for sample in own) / drafted if drafted else 0.0
        if shares["on"] <= ACCEPTED_SHARE_MIN:
            raise BenchRefused(
                f"the remote was not in use: in ON {shares['on']:.1%} of the drafts were accepted at {context} tokens "
                "of context, as of drafts that are no guesses at all"
            )
        if paused and shares["off"] > OFF_SHARE_MAX * shares["on"]:
            raise BenchRefused(
                f"pausing changed nothing: at {context} tokens of context {shares['off']:.0%} of the drafts were "
                f"accepted in OFF and {shares['on']:.0%} in ON"
            )
