"""The page itself: one static HTML file.  No script, nothing from elsewhere; every text from outside is escaped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from qualification import __version__
from qualification.checks.model import Check
from qualification.gate import Judgement
from qualification.receipts import VerifiedRun
from qualification.review import content, plots
from qualification.review.gather import Gathered, observations_of
from qualification.review.measure import QUANTILES, Measured, bucket_name, measure, quantile


@dataclass(frozen=True)
class Asked:
    """What a page is about beside the evidence.  candidate, production: digests by name, empty where not given."""

    folder: str
    judgement: Judgement | None = None
    candidate: Mapping[str, str] | None = None
    production: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Drawn:
    """One figure.  svg: our own drawing.  head, rows: the same as a table."""

    title: str
    caption: str
    svg: Markup
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def render(gathered: Gathered, asked: Asked, checks: Sequence[Check]) -> str:
    """The page."""
    word, look, sentences = content.verdict_of_page(gathered, asked.judgement)
    runs = [content.run_part(run, number, checks) for number, run in enumerate(gathered.runs, 1)]
    qualified = [
        {s.name: s.digest.sha256 for s in run.receipts[0].statement.subject} for run in gathered.verified
    ]
    environment = Environment(
        loader=PackageLoader("qualification.review"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("review.html.j2").render(
        version=__version__,
        folder=asked.folder,
        headline=word,
        look=look,
        sentences=sentences,
        judgement=asked.judgement,
        evidence=_evidence_words(runs),
        runs=runs,
        rows=content.matrix(gathered, checks),
        not_run=content.not_run(gathered),
        conflicts=content.conflicts(gathered),
        subjects=_subjects(gathered.verified, qualified, asked),
        figures=[drawn for number, run in enumerate(gathered.verified, 1) for drawn in _figures(run, number)],
    )


def _evidence_words(runs: Sequence[content.RunPart]) -> tuple[str, str, str]:
    """Class of all that verified: a word, its look, a sentence."""
    verified = [run for run in runs if run.verified]
    if not verified:
        return "NO EVIDENCE THAT COUNTS", "bad", "No run verifies."
    if all(run.evidence_class == "native" for run in verified):
        return "NATIVE", "pass", "Every receipt is from a supported engine on a CUDA device, in both arms."
    why = next(
        (run.why_class for run in verified if run.why_class), "not every arm ran on the stated platform"
    )
    return "REHEARSAL", "hold", f"It shows that the apparatus works, and can never promote: {why}."


def _subjects(
    verified: Sequence[VerifiedRun], qualified: Sequence[Mapping[str, str]], asked: Asked
) -> list[tuple[str, tuple[content.SubjectRow, ...]]]:
    """A table per run and set that it is compared with."""
    tables = []
    for run, digests in zip(verified, qualified, strict=True):
        others = [("what is to be promoted", asked.candidate), ("production", asked.production)]
        given = [(word, other) for word, other in others if other is not None]
        for word, other in given or [("", {})]:
            title = f"Run {run.record.run_id}" + (f" against {word}" if word else "")
            tables.append((title, content.subject_rows(digests, other, word)))
    return tables


def _figures(run: VerifiedRun, number: int) -> list[Drawn]:
    """Latencies of each pair of arms that drafted in both, and acceptance where there is any."""
    files = observations_of(run)
    measured = {start: measure(of_start) for start, of_start in files.items()}
    pairs: dict[tuple[str, str], tuple[Measured, Measured]] = {}
    for receipt in run.receipts:
        arms = receipt.predicate.arms
        off, on = (_of_arm(side.starts, measured) for side in (arms.off, arms.on))
        if off is not None and on is not None and off.round_ms and on.round_ms:
            pairs.setdefault((arms.off.arm.name, arms.on.arm.name), (off, on))
    drawn = []
    for at, ((off_name, on_name), (off, on)) in enumerate(sorted(pairs.items()), 1):
        names, prefix = f"{off_name} (OFF) and {on_name} (ON), run {run.record.run_id}", f"f{number}-{at}"
        drawn.append(_latency(names, off, on, f"{prefix}l"))
        if off.drafted and on.drafted:
            drawn.append(_acceptance(names, off, on, f"{prefix}a"))
    return drawn


def _of_arm(starts: Sequence[str], measured: Mapping[str, Measured]) -> Measured | None:
    return next((measured[start] for start in starts if start in measured), None)


def _latency(names: str, off: Measured, on: Measured, prefix: str) -> Drawn:
    rows = []
    for arm, one in (("OFF", off), ("ON", on)):
        for what, values in (("step", one.step_ms), ("round", one.round_ms)):
            if values:
                numbers = (f"{quantile(values, share):.3g}" for share in QUANTILES)
                rows.append((arm, what, str(len(values)), *numbers))
    return Drawn(
        title=f"Step and round times: {names}",
        caption="How large a share took no longer than so many milliseconds; further left is faster. OFF is dashed. "
        "Times are of all cases of the arms, with the hooks' own cost in both.",
        svg=Markup(plots.latencies(off, on, prefix)),
        head=("arm", "what", "count", *(f"{share:.0%} within, ms" for share in QUANTILES)),
        rows=tuple(rows),
    )


def _acceptance(names: str, off: Measured, on: Measured, prefix: str) -> Drawn:
    rows = []
    for bucket in sorted({*off.acceptance, *on.acceptance}):
        for arm, one in (("OFF", off), ("ON", on)):
            if bucket in one.acceptance:
                of = one.acceptance[bucket]
                rows.append((bucket_name(bucket), arm, str(of.drafted), str(of.accepted), f"{of.share:.3f}"))
    return Drawn(
        title=f"Acceptance by prompt length: {names}",
        caption="Of the drafts that the target verified, the share that it accepted. OFF is hatched.",
        svg=Markup(plots.acceptance(off, on, prefix)),
        head=("tokens of the prompt", "arm", "drafted", "accepted", "share"),
        rows=tuple(rows),
    )
