"""The figures of a run: medians with their spread, ON over OFF pair by pair, and their schema.  Pure.

`python -m spark_overlay.bench.result FILE` writes the schema; docs/operations/bench.schema.json is this version's.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from spark_overlay.bench.plan import ArmName, Plan
from spark_overlay.bench.sample import Sample

SCHEMA_VERSION = 1
MS = 1000.0
Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Spread(_Record):
    """The median of the repeats, and the least and greatest of them."""

    median: float
    low: float
    high: float


class ArmFigures(_Record):
    """One arm at one context.

    first_token_ms: time to first token.  step_p50_ms: the median time of a decode step as its chunks arrived; null
    where the front end put steps together, which then nobody saw apart.  step_mean_ms: the mean by the engine's own
    metrics.  decode_tokens_per_s: behind the first token, by the engine's clock.  tokens_per_step: of it.  drafts:
    verified blocks; accepted_per_draft: accepted tokens of each; accepted_share: of all draft tokens.  Null where
    nothing was drafted.
    """

    first_token_ms: Spread
    step_p50_ms: Spread | None
    step_mean_ms: Spread
    decode_tokens_per_s: Spread
    tokens_per_step: float
    steps: Count
    drafts: Count
    draft_tokens: Count
    accepted_tokens: Count
    accepted_per_draft: float | None
    accepted_share: float | None


class Ratios(_Record):
    """ON over OFF of the same repeat, each; below 1 is better for times, above 1 for decode_tokens_per_s."""

    first_token: Spread
    step_p50: Spread | None
    step_mean: Spread
    decode_tokens_per_s: Spread


class ContextFigures(_Record):
    """One context.  context_tokens: of its prompts."""

    context_tokens: Count
    off: ArmFigures
    on: ArmFigures
    on_over_off: Ratios


class SampleFigures(_Record):
    """One request, in the order of the run."""

    context_tokens: Count
    repeat: Count
    arm: Literal["off", "on"]
    first_token_ms: float
    step_p50_ms: float | None
    step_mean_ms: float
    decode_tokens_per_s: float
    steps: Count
    seen_steps: Count
    drafts: Count
    draft_tokens: Count
    accepted_tokens: Count


class BenchResult(_Record):
    """A whole run.  url: of ON's engine; off_url: of OFF's.  how: how OFF was brought about.  overlay: our version."""

    schema_version: Literal[1] = 1
    overlay: str
    url: str
    off_url: str
    how: str
    model: str
    seed: str
    generated_tokens: Count
    repeats: Count
    started_at: float
    contexts: list[ContextFigures]
    samples: list[SampleFigures]


def figures(samples: Sequence[Sample], plan: Plan) -> list[ContextFigures]:
    """Of every context of the plan, all of whose turns were measured."""
    return [_context(context, samples) for context in plan.contexts]


def sample_figures(samples: Sequence[Sample]) -> list[SampleFigures]:
    """Each request, for whoever judges differently."""
    return [
        SampleFigures(
            context_tokens=sample.turn.context,
            repeat=sample.turn.repeat,
            arm=sample.turn.arm,
            first_token_ms=sample.first_token_s * MS,
            step_p50_ms=None if sample.step_p50_s is None else sample.step_p50_s * MS,
            step_mean_ms=sample.step_mean_s * MS,
            decode_tokens_per_s=sample.decode_tokens_per_s,
            steps=sample.steps,
            seen_steps=sample.seen_steps,
            drafts=sample.drafts,
            draft_tokens=sample.draft_tokens,
            accepted_tokens=sample.accepted_tokens,
        )
        for sample in samples
    ]


def schema() -> dict[str, Any]:
    """Of `BenchResult`, JSON Schema."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **BenchResult.model_json_schema(mode="serialization")}


def _context(context: int, samples: Sequence[Sample]) -> ContextFigures:
    own: dict[ArmName, list[Sample]] = {
        arm: sorted(_of(samples, context, arm), key=lambda sample: sample.turn.repeat)
        for arm in ("off", "on")
    }
    pairs = list(zip(own["off"], own["on"], strict=True))

    def ratio(value: Callable[[Sample], float | None]) -> Spread | None:
        values = [(value(on), value(off)) for off, on in pairs]
        return _spread(None if on is None or off is None else on / off for on, off in values)

    return ContextFigures(
        context_tokens=context,
        off=_arm(own["off"]),
        on=_arm(own["on"]),
        on_over_off=Ratios(
            first_token=_sure(ratio(lambda sample: sample.first_token_s)),
            step_p50=ratio(lambda sample: sample.step_p50_s),
            step_mean=_sure(ratio(lambda sample: sample.step_mean_s)),
            decode_tokens_per_s=_sure(ratio(lambda sample: sample.decode_tokens_per_s)),
        ),
    )


def _of(samples: Iterable[Sample], context: int, arm: ArmName) -> list[Sample]:
    return [sample for sample in samples if (sample.turn.context, sample.turn.arm) == (context, arm)]


def _arm(samples: Sequence[Sample]) -> ArmFigures:
    drafts, draft_tokens = sum(one.drafts for one in samples), sum(one.draft_tokens for one in samples)
    accepted, steps = sum(one.accepted_tokens for one in samples), sum(one.steps for one in samples)
    decoded = sum(one.decode_tokens_per_s * one.step_mean_s * one.steps for one in samples)
    return ArmFigures(
        first_token_ms=_sure(_spread(one.first_token_s * MS for one in samples)),
        step_p50_ms=_spread(None if one.step_p50_s is None else one.step_p50_s * MS for one in samples),
        step_mean_ms=_sure(_spread(one.step_mean_s * MS for one in samples)),
        decode_tokens_per_s=_sure(_spread(one.decode_tokens_per_s for one in samples)),
        tokens_per_step=decoded / steps,
        steps=steps,
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted,
        accepted_per_draft=accepted / drafts if drafts else None,
        accepted_share=accepted / draft_tokens if draft_tokens else None,
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    """None where one of the values is not known: a median of the others would be of another thing."""
    known: list[float] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return Spread(median=statistics.median(known), low=min(known), high=max(known))


def _sure(spread: Spread | None) -> Spread:
    assert spread is not None, "these values are always known"
    return spread


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
