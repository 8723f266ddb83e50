"""Candidates against the noise floor: what the baseline's own samples differ by among themselves.

A prompt that the baseline answers the same every time must be answered so by a candidate, to the last bit.  Where the
baseline differs from itself, a candidate may differ by `factor` times as much, and no earlier than a `factor`-th of
where it does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from engram_remote.logit_ab.errors import LogitError
from engram_remote.logit_ab.measure import Distance, distance
from engram_remote.logit_ab.record import Run, Sample

Verdict = Literal["identical", "within the floor", "different"]
FACTOR = 2.0


@dataclass(frozen=True)
class Worst:
    """The farthest of some pairs.  pairs: how many; diverged: earliest; the others: largest."""

    pairs: int
    diverged: int | None
    delta: float
    prompt_delta: float | None

    @classmethod
    def of(cls, distances: Sequence[Distance]) -> "Worst":
        """Over at least one distance."""
        places = [one.diverged for one in distances if one.diverged is not None]
        deltas = [one.prompt_delta for one in distances if one.prompt_delta is not None]
        return cls(
            len(distances),
            min(places) if places else None,
            max(one.delta for one in distances),
            max(deltas) if deltas else None,
        )


@dataclass(frozen=True)
class Row:
    """One candidate's answers to one prompt.  reason: what is beyond the floor, "" where nothing is."""

    candidate: str
    prompt: str
    prompt_tokens: int
    floor: Worst
    found: Worst
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Comparison:
    """Every candidate and prompt.  verdict: the worst of them."""

    rows: tuple[Row, ...]

    @property
    def verdict(self) -> Verdict:
        found = {row.verdict for row in self.rows}
        order: tuple[Verdict, ...] = ("different", "within the floor", "identical")
        return next(verdict for verdict in order if verdict in found)


RunAndSamples = tuple[Run, list[Sample]]


def compare(
    baselines: Sequence[RunAndSamples], candidates: Sequence[RunAndSamples], factor: float = FACTOR
) -> Comparison:
    """Raises LogitError where runs are not of the same prompts and requests, or where there is no floor."""
    if not candidates:
        raise LogitError("there is no run to compare with the baseline")
    _check_alike([*baselines, *candidates])
    prompts = list(dict.fromkeys(sample.prompt_sha256 for sample in baselines[0][1]))
    rows = []
    for prompt in prompts:
        own = [sample for _, samples in baselines for sample in samples if sample.prompt_sha256 == prompt]
        if len(own) < 2:
            raise LogitError(
                f"prompt {own[0].prompt} has one baseline sample: two are needed to know the baseline's own noise"
            )
        floor = Worst.of([distance(*pair) for pair in combinations(own, 2)])
        for run, samples in candidates:
            theirs = [sample for sample in samples if sample.prompt_sha256 == prompt]
            found = Worst.of([distance(one, other) for one in own for other in theirs])
            verdict, reason = judge(floor, found, factor)
            rows.append(Row(run.label, own[0].prompt, own[0].prompt_tokens, floor, found, verdict, reason))
    return Comparison(tuple(rows))


def judge(floor: Worst, found: Worst, factor: float) -> tuple[Verdict, str]:
    """The verdict on one prompt, and what is beyond the floor."""
    if found.diverged is None and found.delta == 0 and not found.prompt_delta:
        return "identical", ""
    beyond = []
    if found.delta > floor.delta * factor:
        beyond.append(f"a logprob differs by {found.delta:.6g}, the baseline's own by {floor.delta:.6g}")
    if (found.prompt_delta or 0) > (floor.prompt_delta or 0) * factor:
        beyond.append(
            f"a prompt logprob differs by {found.prompt_delta:.6g}, the baseline's own by {floor.prompt_delta or 0:.6g}"
        )
    if found.diverged is not None and floor.diverged is None:
        beyond.append(f"token {found.diverged} differs, the baseline's own never do")
    elif (
        found.diverged is not None
        and floor.diverged is not None
        and (found.diverged + 1) * factor < floor.diverged + 1
    ):
        beyond.append(f"token {found.diverged} differs, the baseline's own from token {floor.diverged} on")
    return ("different", "; ".join(beyond)) if beyond else ("within the floor", "")


def _check_alike(runs: Sequence[RunAndSamples]) -> None:
    labels = [run.label for run, _ in runs]
    if len(set(labels)) != len(labels):
        raise LogitError(f"labels must differ: {labels}")
    first, samples = runs[0]
    prompts = {sample.prompt_sha256 for sample in samples}
    for run, theirs in runs[1:]:
        for name in ("max_tokens", "top"):
            if getattr(run, name) != getattr(first, name):
                raise LogitError(
                    f"run {run.label}: {name} is {getattr(run, name)}, in {first.label} {getattr(first, name)}"
                )
        if {sample.prompt_sha256 for sample in theirs} != prompts:
            raise LogitError(f"run {run.label} has other prompts than {first.label}")
    _check_prompts_alike(runs)


def _check_prompts_alike(runs: Sequence[RunAndSamples]) -> None:
    """A prompt has as many tokens everywhere, and log-probabilities of them in all samples or in none.

    Where some lack them the rows that the prompt's positions read would count as compared, and were not.
    """
    first: dict[str, Sample] = {}
    for run, theirs in runs:
        for sample in theirs:
            one = first.setdefault(sample.prompt_sha256, sample)
            where = f"run {run.label}: prompt {sample.prompt}"
            if one.prompt_tokens != sample.prompt_tokens:
                raise LogitError(f"{where} has another number of tokens than elsewhere")
            if _given(one) != _given(sample):
                raise LogitError(
                    f"{where} has log-probabilities of {_given(sample)} of its tokens, elsewhere of {_given(one)}"
                )


def _given(sample: Sample) -> int:
    return 0 if sample.prompt_logprobs is None else len(sample.prompt_logprobs)
