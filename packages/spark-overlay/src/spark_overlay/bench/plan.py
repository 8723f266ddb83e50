"""What a run measures: contexts, repeats, and the order in which OFF and ON take turns.  Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_overlay.bench.errors import BenchRefused
from spark_overlay.http_api.api import MODELS
from spark_overlay.http_api.replies import Model

ArmName = Literal["off", "on"]
SHARES = (16, 4)
"""By default contexts are a sixteenth, a quarter and all of what fits; the longest at most LONGEST_TOKENS."""
LONGEST_TOKENS = 32768


@dataclass(frozen=True)
class Plan:
    """contexts: prompt tokens.  generate: tokens of each completion.  timeout_s: for the whole run."""

    contexts: tuple[int, ...]
    generate: int
    repeats: int
    seed: str
    timeout_s: float


@dataclass(frozen=True)
class Turn:
    """One measured request.  repeat: from 0."""

    repeat: int
    context: int
    arm: ArmName

    @property
    def name(self) -> str:
        """Of its prompt, unlike that of any other turn."""
        return f"bench-{self.context}-{self.repeat}-{self.arm}"


def contexts_for(model: Model, wanted: Sequence[int] | None, generate: int) -> tuple[int, ...]:
    """The contexts to measure.  wanted: None: three by the engine's longest sequence.  Raises BenchRefused."""
    limit = model.max_model_len
    if wanted is None:
        if limit is None:
            raise BenchRefused(
                f"the engine does not tell max_model_len in {MODELS}: --contexts must be given"
            )
        longest = min(limit - generate, LONGEST_TOKENS)
        wanted = sorted({count for count in (*(longest // share for share in SHARES), longest) if count > 0})
    if not wanted or (limit is not None and max(wanted) + generate > limit):
        raise BenchRefused(
            f"{max(wanted, default=1)} prompt tokens and {generate} generated ones are more than the {limit} tokens of "
            "the engine's longest sequence (max_model_len)"
        )
    return tuple(wanted)


def turns(plan: Plan) -> Iterator[Turn]:
    """All of them.  Each context has OFF and ON next to each other, and which comes first alternates: what drifts
    slowly, as a host that warms up, falls on both alike."""
    first: tuple[ArmName, ArmName] = ("off", "on")
    for repeat in range(plan.repeats):
        for context in plan.contexts:
            yield from (Turn(repeat, context, arm) for arm in first)
            first = (first[1], first[0])
