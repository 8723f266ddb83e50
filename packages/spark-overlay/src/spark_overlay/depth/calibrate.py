"""Measures a running engine depth by depth: holds it to one, asks it for a completion, reads what both sides counted.

Owns the order of a run and the cap in the control file while it lasts, which is given back as it was.  A sample counts
only where the engine had nothing else to do, was held to the depth and every round of it succeeded; anything else ends
the run in a sentence.  Knows no terminal.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ofl.contract.records import printable

from spark_overlay.bench.plan import Turn
from spark_overlay.bench.sample import POLL_S, Sample, measure, require_idle
from spark_overlay.control.files import read_record
from spark_overlay.control.ordering import order, wait_for
from spark_overlay.control.record import ControlFileError, ControlRecord
from spark_overlay.depth.figures import DepthSample
from spark_overlay.http_api.api import Asked, EngineApi
from spark_overlay.http_api.prompts import PromptMaker
from spark_overlay.stats_file import StatsFileError, read_stats, section

REASON = "spark-overlay calibrate"
SHORT_PROMPT, SHORT_TOKENS = (1, 2, 3, 4), 2
"""Token ids that every vocabulary has, and a completion of two steps."""
EFFECT_S = 30.0
"""An engine looks at its control file twenty times a second; this is for a busy host."""


class CalibrateRefused(Exception):
    """What would be measured is not what was asked for; the text is one sentence."""


@dataclass(frozen=True)
class Plan:
    """depths: None: all that the engine can verify.  prompts: token ids, taken by turns; None: made up, of
    prompt_tokens each.  seed: of those; None: new ones each run.  timeout_s: for the whole run.
    """

    depths: tuple[int, ...] | None
    repeats: int
    generate: int
    prompt_tokens: int
    prompts: tuple[tuple[int, ...], ...] | None
    seed: str | None
    timeout_s: float


@dataclass(frozen=True)
class Measured:
    """samples: of every repeat and depth.  block: K.  prompt_tokens: of each repeat.  stats: the last figures."""

    samples: tuple[DepthSample, ...]
    block: int
    prompt_tokens: tuple[int, ...]
    stats: Mapping[str, Any]


@dataclass
class HeldEngine:
    """One engine with its control file and stats file."""

    api: EngineApi
    model: str
    control: Path
    stats: Path

    def check(self) -> Mapping[str, Any]:
        """Its figures, where it can be calibrated at all.  Raises CalibrateRefused, and EngineApiError."""
        stats = self._stats()
        told = section(stats, "control")
        if not told or Path(str(told.get("file"))).absolute() != self.control.absolute():
            obeyed = (
                printable(str(told.get("file")))
                if told
                else "none (VLLM_DSPARK_REMOTE_CONTROL_FILE is not set)"
            )
            raise CalibrateRefused(
                f"the engine of {self.stats} obeys another control file than {self.control}: {obeyed}"
            )
        if stats.get("policy") == "shadow":
            raise CalibrateRefused("the engine is in shadow, where a step takes both drafters' time")
        if told.get("state") != "active":
            raise CalibrateRefused(
                f"remote drafting is paused by {self.control}: `spark-overlay resume` first"
            )
        if stats.get("disabled") or not stats.get("connected"):
            why = stats.get("disabled") or stats.get("last_failure") or "no answer so far"
            raise CalibrateRefused(f"no worker drafts for the engine: {printable(str(why))}")
        require_idle(self.api)
        return stats

    def hold(self, depth: int | None) -> Mapping[str, Any]:
        """Cap the engine, None: not; what its figures say once it is in effect.  Raises CalibrateRefused."""
        ordered = self._order(depth, REASON)
        stats, why = wait_for(self.stats, ordered, EFFECT_S)
        if stats is None:
            raise CalibrateRefused(
                f"the engine was not held to depth {depth} within {EFFECT_S:g} s: {printable(why)}"
            )
        told = section(stats, "control")
        if told.get("depth_max") != depth or told.get("state") != "active":
            raise CalibrateRefused(f"somebody else changed {self.control} during the run")
        # Only now: figures of before the order may be of an engine that was not up yet.
        if note := told.get("depth_note"):
            raise CalibrateRefused(f"the engine cannot be held to a depth: {printable(str(note))}")
        return stats

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Give the cap back as it was, however the run ends; not where somebody else has changed it since."""
        before = self._read()
        try:
            yield
        finally:
            if self._read().reason == REASON:
                self._order(before.depth_max, before.reason)

    def ask(self, prompt: Sequence[int], generate: int, repeat: int, timeout_s: float) -> Sample:
        """One completion whose prompt no cache holds.  Raises BenchRefused, and EngineApiError."""
        asked = Asked(prompt, generate, timeout_s, cache_salt=secrets.token_hex(16))
        return measure(self.api, self.model, Turn(repeat, len(prompt), "on"), asked)

    def figures(self, rounds: float) -> Mapping[str, Any]:
        """The figures once they hold so many rounds.  The engine's first round under a new order writes them.

        Raises CalibrateRefused.
        """
        end_s = time.monotonic() + EFFECT_S
        while _rounds(stats := self._stats()) < rounds:
            if time.monotonic() > end_s:
                raise CalibrateRefused(
                    f"{self.stats} counts {_rounds(stats):.0f} rounds where {rounds:.0f} were made: is it its own?"
                )
            time.sleep(POLL_S)
        return stats

    def block(self) -> int:
        """K, which the engine's metrics tell: they count by position.  Raises CalibrateRefused, and EngineApiError."""
        counters = require_idle(self.api)
        if not counters.speculative or not counters.accepted_by_position:
            raise CalibrateRefused(f"the engine at {self.api.address} counts no drafts in its metrics")
        return len(counters.accepted_by_position)

    def _stats(self) -> Mapping[str, Any]:
        try:
            return read_stats(self.stats).stats
        except StatsFileError as error:
            raise CalibrateRefused(f"{self.stats}: {error}") from None

    def _order(self, depth: int | None, reason: str) -> ControlRecord:
        try:
            return order(self.control, reason, depth_max=depth)
        except ControlFileError as error:
            raise CalibrateRefused(f"the control file {self.control} {error}") from None

    def _read(self) -> ControlRecord:
        try:
            return read_record(self.control) or ControlRecord()
        except ControlFileError as error:
            raise CalibrateRefused(f"the control file {self.control} {error}") from None


def run(engine: HeldEngine, plan: Plan, tell: Callable[[str], None] = lambda text: None) -> Measured:
    """All of it.  tell: what is under way.  Raises CalibrateRefused, BenchRefused, PromptError and EngineApiError."""
    end_s = time.monotonic() + plan.timeout_s
    engine.check()
    prompts = _prompts(engine, plan)
    with engine.borrowed():
        tell("one completion to warm up")
        engine.hold(None)
        engine.ask(prompts[0], plan.generate, 0, _left_s(end_s))
        block = engine.block()
        depths = _depths(plan, block)
        samples = []
        stats = _counted(engine, depths[0], engine.hold(depths[0]), 0, _left_s(end_s))
        for repeat in range(plan.repeats):
            # Another depth comes first each time, so that what drifts does not fall on the same one.
            turned = depths[repeat % len(depths) :] + depths[: repeat % len(depths)]
            for depth in turned:
                tell(f"repeat {repeat + 1} of {plan.repeats}, depth {depth}")
                before = stats
                engine.hold(depth)
                sample = engine.ask(prompts[repeat], plan.generate, repeat, _left_s(end_s))
                stats = _counted(engine, depth, before, sample.steps, _left_s(end_s))
                samples.append(depth_sample(sample, depth, block, before, stats))
    return Measured(tuple(samples), block, tuple(len(prompt) for prompt in prompts), stats)


def _counted(
    engine: HeldEngine, depth: int, before: Mapping[str, Any], steps: int, timeout_s: float
) -> Mapping[str, Any]:
    """The figures with the steps of a completion in them: a short one under an order of its own has them written."""
    engine.hold(depth)
    engine.ask(SHORT_PROMPT, SHORT_TOKENS, 0, timeout_s)
    return engine.figures(_rounds(before) + steps + 1)


def depth_sample(
    sample: Sample, depth: int, block: int, before: Mapping[str, Any], after: Mapping[str, Any]
) -> DepthSample:
    """What one request showed of its depth.  before, after: the stats around it.  Raises CalibrateRefused."""
    if sample.draft_tokens > depth * sample.drafts or (depth and not sample.drafts):
        mean = sample.draft_tokens / sample.drafts if sample.drafts else 0.0
        raise CalibrateRefused(
            f"held to depth {depth}, the engine verified {mean:.2f} drafts a step: something else chooses its depth "
            "(adaptive verification, a depth policy or a schedule must be off)"
        )
    # The last step of a completion may have room for fewer drafts; more than one in ten says something else.
    if depth and sample.draft_tokens < 0.9 * depth * sample.drafts - block:
        mean = sample.draft_tokens / sample.drafts
        raise CalibrateRefused(f"held to depth {depth}, the engine verified only {mean:.2f} drafts a step")
    failed = _change("counters", "rounds_failed", before, after) + _change(
        "counters", "rounds_some_failed", before, after
    )
    if failed:
        raise CalibrateRefused(
            f"{failed:.0f} rounds failed at depth {depth}: their steps were verified without drafts"
        )
    rounds = _rounds(after) - _rounds(before)
    return DepthSample(
        repeat=sample.turn.repeat,
        depth=depth,
        step_ms=1000 * sample.step_mean_s,
        step_p50_ms=None if sample.step_p50_s is None else 1000 * sample.step_p50_s,
        steps=sample.steps,
        accepted=sample.accepted_tokens,
        tokens_per_s=sample.decode_tokens_per_s,
        remote_ms=(_latency(after, "sum") - _latency(before, "sum")) / rounds / 1000,
    )


def _prompts(engine: HeldEngine, plan: Plan) -> list[tuple[int, ...]]:
    """One of each repeat."""
    if plan.prompts is not None:
        return [plan.prompts[repeat % len(plan.prompts)] for repeat in range(plan.repeats)]
    maker = PromptMaker(
        lambda text: engine.api.tokenize(engine.model, text), plan.seed or secrets.token_hex(16)
    )
    return [maker.exact(f"calibrate-{repeat}", plan.prompt_tokens) for repeat in range(plan.repeats)]


def _depths(plan: Plan, block: int) -> tuple[int, ...]:
    depths = tuple(range(block + 1)) if plan.depths is None else plan.depths
    if max(depths) > block:
        raise CalibrateRefused(
            f"depth {max(depths)} is more than the {block} drafts that the engine verifies"
        )
    return depths


def _left_s(end_s: float) -> float:
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise CalibrateRefused("the run was not done within --timeout-s")
    return left_s


def _change(part: str, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    return float(section(after, part).get(name, 0)) - float(section(before, part).get(name, 0))


def _rounds(stats: Mapping[str, Any]) -> float:
    return _latency(stats, "count")


def _latency(stats: Mapping[str, Any], name: str) -> float:
    found = section(stats, "latency").get("rank0_round_us")
    return float(found.get(name, 0)) if isinstance(found, Mapping) else 0.0
