"""What a calibration found: samples to figures by depth, the two cost tables, the verdict.  Pure.

A step at depth d costs what verifying d drafts costs and the remote round in it.  The engine's own clock has the step,
rank 0's figures have the round; verifying is the rest.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from spark_overlay.depth.best import judge
from spark_overlay.depth.rules import REMOTE_DRAFT_MS, REMOTE_ROUND_MS
from spark_overlay.depth.tables import shown

DIGITS = 4
"""Decimals of milliseconds that are kept: a tenth of a microsecond."""


@dataclass(frozen=True)
class DepthSample:
    """One request at one depth.  Times in milliseconds.

    step_ms: mean of its steps by the engine's clock.  step_p50_ms: median as it was streamed; None where steps came
    together.  steps: of them.  accepted: drafts in all steps.  remote_ms: mean of its remote rounds.
    """

    repeat: int
    depth: int
    step_ms: float
    step_p50_ms: float | None
    steps: int
    accepted: int
    tokens_per_s: float
    remote_ms: float


class DepthFigures(BaseModel):
    """One depth; medians over repeats."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    depth: int
    step_p50_ms: float | None = Field(description="median step as streamed; null where steps came together")
    step_ms: float = Field(description="mean step by the engine's clock")
    remote_ms: float = Field(description="mean remote round in it")
    verify_ms: float = Field(description="the rest: verifying, as measured")
    accepted_per_step: float
    tokens_per_s: float
    tokens_per_s_low: float = Field(description="lowest of the repeats")
    tokens_per_s_high: float
    expected_tokens_per_s: float | None = Field(
        description="(accepted + 1) / (ROUND_MS + DRAFT_MS), from the tables below; null without them"
    )


class Calibration(BaseModel):
    """A whole run, as --json writes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    overlay_version: str
    started_at: float = Field(description="Unix time in seconds")
    url: str
    model: str
    policy: str
    endpoint: str
    block: int = Field(description="K: drafts that the engine verifies at most")
    prompt_tokens: list[int] = Field(description="of each repeat")
    prompts: Literal["made up", "given"]
    generate: int
    repeats: int
    depths: list[DepthFigures]
    draft_ms: float | None = Field(description=f"{REMOTE_DRAFT_MS}; null where no depth above 0 was measured")
    round_ms: list[float] | None = Field(description=f"{REMOTE_ROUND_MS}; null where a depth is missing")
    raised: list[int] = Field(description="depths whose entry was raised to the one before it")
    no_tables: str = Field(description="why there is no round_ms; empty where there is")
    best_depth: int | None = Field(description="null where noise hides which")
    candidates: list[int]
    verdict: str


@dataclass(frozen=True)
class Tables:
    """draft_ms, round_ms: None where they cannot be made, problem says why.  raised: see `Calibration`."""

    draft_ms: float | None
    round_ms: tuple[float, ...] | None
    raised: tuple[int, ...]
    problem: str


def tables(samples: Sequence[DepthSample], block: int) -> Tables:
    """The costs as settings take them."""
    drafting = [sample.remote_ms for sample in samples if sample.depth]
    draft_ms = round(statistics.median(drafting), DIGITS) if drafting else None
    missing = sorted(set(range(block + 1)) - {sample.depth for sample in samples})
    if missing:
        names = ", ".join(map(str, missing))
        return Tables(draft_ms, None, (), f"{REMOTE_ROUND_MS} needs all depths; not measured: {names}")
    measured = [round(_verify_ms(_of(samples, depth)), DIGITS) for depth in range(block + 1)]
    if measured[0] <= 0:
        return Tables(draft_ms, None, (), f"{REMOTE_ROUND_MS}: a step was no longer than its remote round")
    rising = tuple(accumulate(measured, max))
    raised = tuple(depth for depth, value in enumerate(measured) if value < rising[depth])
    return Tables(draft_ms, rising, raised, "")


def depth_figures(samples: Sequence[DepthSample], made: Tables) -> list[DepthFigures]:
    """Figures of each depth, by depth."""
    return [_figures(_of(samples, depth), made) for depth in sorted({sample.depth for sample in samples})]


def by_depth(samples: Sequence[DepthSample]) -> dict[int, list[float]]:
    """Tokens per second of each repeat, by depth, for `judge`."""
    ordered = sorted(samples, key=lambda sample: sample.repeat)
    return {
        depth: [one.tokens_per_s for one in _of(ordered, depth)] for depth in {one.depth for one in samples}
    }


def environment(found: Calibration) -> str:
    """The tables as lines of an environment file, with what they were measured on in comments."""
    lines = [
        f"# spark-overlay calibrate {found.overlay_version}: {found.model} at {found.url}, worker {found.endpoint}",
        f"# {found.repeats} repeats of {found.generate} tokens, prompts {found.prompts}; one request at a time",
    ]
    if found.draft_ms is not None:
        lines.append(f"{REMOTE_DRAFT_MS}={shown([found.draft_ms])}")
    if found.round_ms is not None:
        if found.raised:
            names = ", ".join(map(str, found.raised))
            lines.append(f"# raised to the depth before, since verifying more never costs less: {names}")
        lines.append(f"{REMOTE_ROUND_MS}={shown(found.round_ms)}")
    else:
        lines.append(f"# {found.no_tables}")
    return "\n".join([*lines, f"# {found.verdict}"]) + "\n"


def calibration(samples: Sequence[DepthSample], block: int, **facts: object) -> Calibration:
    """A whole run.  facts: the fields of `Calibration` that say what was measured."""
    made, verdict = tables(samples, block), judge(by_depth(samples))
    return Calibration.model_validate(
        facts
        | {
            "block": block,
            "depths": depth_figures(samples, made),
            "draft_ms": made.draft_ms,
            "round_ms": None if made.round_ms is None else list(made.round_ms),
            "raised": list(made.raised),
            "no_tables": made.problem,
            "best_depth": verdict.best,
            "candidates": list(verdict.candidates),
            "verdict": verdict.sentence,
        }
    )


def _figures(samples: Sequence[DepthSample], made: Tables) -> DepthFigures:
    p50s = [sample.step_p50_ms for sample in samples if sample.step_p50_ms is not None]
    rates = [sample.tokens_per_s for sample in samples]
    accepted = sum(one.accepted for one in samples) / sum(one.steps for one in samples)
    depth, expected = samples[0].depth, None
    if made.round_ms is not None and made.draft_ms is not None:
        # At depth 0 the round only keeps the worker's context, which its own measurement has.
        drafting = made.draft_ms if depth else statistics.median(one.remote_ms for one in samples)
        expected = 1000 * (1 + accepted) / (made.round_ms[depth] + drafting)
    return DepthFigures(
        depth=depth,
        step_p50_ms=statistics.median(p50s) if p50s else None,
        step_ms=statistics.median(one.step_ms for one in samples),
        remote_ms=statistics.median(one.remote_ms for one in samples),
        verify_ms=_verify_ms(samples),
        accepted_per_step=accepted,
        tokens_per_s=statistics.median(rates),
        tokens_per_s_low=min(rates),
        tokens_per_s_high=max(rates),
        expected_tokens_per_s=expected,
    )


def _verify_ms(samples: Sequence[DepthSample]) -> float:
    return statistics.median(one.step_ms - one.remote_ms for one in samples)


def _of(samples: Sequence[DepthSample], depth: int) -> list[DepthSample]:
    return [sample for sample in samples if sample.depth == depth]
