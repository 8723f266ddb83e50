"""The page itself: one static HTML file.  No script, nothing from elsewhere; every text from outside is escaped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from qualification import __version__
from qualification.checks.model import Check
from qualification.gate import Judgement
from qualification.receipts import VerifiedRun
from qualification.receipts.errors import printable
from qualification.review import content, plots
from qualification.review.gather import Gathered, observations_of
from qualification.review.measure import (
    QUANTILES,
    Files,
    Measured,
    bucket_name,
    measure,
    quantile,
    requests_of,
)
from qualification.review.parts import RunPart, SubjectRow


@dataclass(frozen=True)
class Asked:
    """What a page is about beside the evidence.  candidate, production: digests by name, empty where not given."""

    folder: str
    judgement: Judgement | None = None
    candidate: Mapping[str, str] | None = None
    production: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Drawn:
    """One figure.  panels: title and our own drawing, SVG.  head, rows: the same as a table."""

    title: str
    caption: str
    panels: tuple[tuple[str, Markup], ...]
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
        finalize=_shown,
    )
    environment.filters["breakable"] = breakable
    return environment.get_template("review.html.j2").render(
        version=__version__,
        folder=asked.folder,
        headline=word,
        look=look,
        sentences=sentences,
        judgement=asked.judgement,
        held=content.held_by(asked.judgement),
        evidence=_evidence_words(runs),
        runs=runs,
        rows=content.matrix(gathered, checks),
        not_run=content.not_run(gathered),
        conflicts=content.conflicts(gathered),
        subjects=_subjects(gathered.verified, qualified, asked),
        figures=[drawn for number, run in enumerate(gathered.verified, 1) for drawn in _figures(run, number)],
    )


def breakable(text: str) -> Markup:
    """A long name that may be broken after its underscores."""
    return Markup("_<wbr>").join(escape(part) for part in text.split("_"))


def _shown(value: object) -> object:
    """Text without what reorders or hides letters; our own markup and numbers as they are."""
    return printable(value) if type(value) is str else value


def _evidence_words(runs: Sequence[RunPart]) -> tuple[str, str, str]:
    """Class of all that verified: a word, its look, a sentence."""
    verified = [run for run in runs if run.verified]
    if not verified:
        return "NO EVIDENCE THAT COUNTS", "bad", "No run verifies."
    classes = {run.evidence_class for run in verified}
    why = next((run.why_class for run in verified if run.why_class), "no engine started")
    if classes == {"native"}:
        return "NATIVE", "pass", "All engines that started are supported ones on CUDA devices."
    if classes == {"rehearsal"}:
        return "REHEARSAL", "hold", f"It shows that the apparatus works, and can never promote: {why}."
    return "NATIVE IN PART", "hold", f"The rest is a rehearsal, and can never promote: {why}."


def _subjects(
    verified: Sequence[VerifiedRun], qualified: Sequence[Mapping[str, str]], asked: Asked
) -> list[tuple[str, tuple[SubjectRow, ...]]]:
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
    pairs: dict[tuple[str, str], tuple[Measured, Measured]] = {}
    for receipt in run.receipts:
        arms = receipt.predicate.arms
        names = (arms.off.arm.name, arms.on.arm.name)
        off, on = (_of_arm(side.starts, files) for side in (arms.off, arms.on))
        if names not in pairs:
            common = requests_of(off) & requests_of(on)
            pairs[names] = (measure(off, common), measure(on, common))
    drawn = []
    for at, ((off_name, on_name), (left, right)) in enumerate(sorted(pairs.items()), 1):
        told, prefix = f"{off_name} (OFF) and {on_name} (ON), run {run.record.run_id}", f"f{number}-{at}"
        if left.round_ms and right.round_ms:
            drawn.append(_latency(told, left, right, prefix))
        if left.drafted and right.drafted:
            drawn.append(_acceptance(told, left, right, f"{prefix}a"))
    return drawn


def _of_arm(starts: Sequence[str], files: Mapping[str, Files]) -> Files:
    """Files of an arm's first start that has any."""
    return next((files[start] for start in starts if start in files), [])


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
        "A step is from one call of the drafter to the next, a round from its call to its drafts. Both arms "
        "had the same requests, faults included, and the hooks' own cost is in both.",
        panels=(
            ("Steps", Markup(plots.shares(off.step_ms, on.step_ms, f"{prefix}s"))),
            ("Rounds", Markup(plots.shares(off.round_ms, on.round_ms, f"{prefix}r"))),
        ),
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
        panels=(("Drafts", Markup(plots.acceptance(off, on, prefix))),),
        head=("tokens of the prompt", "arm", "drafted", "accepted", "share"),
        rows=tuple(rows),
    )
