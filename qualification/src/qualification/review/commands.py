"""`qualify review`: the page that a person reads before promoting."""

from collections.abc import Mapping
from pathlib import Path

import click

from qualification.again import decided_otherwise
from qualification.checks.registry import all_checks
from qualification.commands.common import FILE, FOLDER, UNUSABLE, stop, usable, watch_verifier
from qualification.gate import Judgement, judge_gate, known_checks, watch_gate
from qualification.policy import read_policy
from qualification.receipts.keys import load_public
from qualification.review.gather import Gathered, gather
from qualification.review.page import Asked, render
from qualification.subjects import SubjectsFile, read_subjects


@click.command()
@click.argument("evidence", type=FOLDER)
@click.option("--key", required=True, type=FILE, help="Public key of whoever signed the receipts.")
@click.option(
    "--policy", type=FILE, help="What the gate demands; with --subjects, the page says promote or hold."
)
@click.option("--subjects", type=FILE, help="What is to be promoted: by `qualify subjects`.")
@click.option("--production", type=FILE, help="What serves today, to show what would change.")
@click.option("--out", required=True, type=FILE, help="The page, HTML.")
def review(
    evidence: Path, key: Path, policy: Path | None, subjects: Path | None, production: Path | None, out: Path
) -> None:
    """Write one static page about the runs below EVIDENCE.

    The page is written whatever the runs are; what does not verify is shown with every violation and without a verdict.
    Exit status 2: an input cannot be used, or the page cannot be written.
    """
    if policy is not None and subjects is None:
        stop(UNUSABLE, "--policy needs --subjects: the gate judges exact bits.")
    with usable():
        public = load_public(key)
        watch_verifier()
        gathered = gather(evidence, public)
        candidate = read_subjects(subjects) if subjects is not None else None
        serving = read_subjects(production) if production is not None else None
        judgement = (
            _judge(policy, candidate, gathered) if policy is not None and candidate is not None else None
        )
        asked = Asked(evidence.resolve().name, judgement, _digests(candidate), _digests(serving))
        page = render(gathered, asked, all_checks())
        out.write_text(page, encoding="utf-8", errors="backslashreplace")  # names of files may be no text
    click.echo(f"{out}: {len(gathered.verified)} of {len(gathered.runs)} runs verify")


def _judge(policy: Path, subjects: SubjectsFile, gathered: Gathered) -> Judgement:
    asked = read_policy(policy)
    watch_gate(asked)
    refused = (*gathered.refused, *decided_otherwise(gathered.verified))
    return judge_gate(asked, subjects, gathered.verified, refused, known=known_checks())


def _digests(subjects: SubjectsFile | None) -> Mapping[str, str] | None:
    return None if subjects is None else {one.name: one.digest.sha256 for one in subjects.subjects}
