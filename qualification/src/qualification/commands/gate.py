"""`qualify gate`: promote or hold."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from qualification.again import decided_otherwise
from qualification.commands.common import FILE, FOLDER, REFUSED, usable, watch_verifier
from qualification.gate import Judgement, judge_gate, known_checks, watch_gate
from qualification.policy import read_policy
from qualification.receipts import ReceiptError, VerifiedRun, Violation, find_runs, verify_run
from qualification.receipts.keys import load_public
from qualification.subjects import read_subjects


@click.command()
@click.option("--policy", required=True, type=FILE, help="TOML, of the promotion.")
@click.option("--subjects", required=True, type=FILE, help="What is to be promoted: by `qualify subjects`.")
@click.option("--evidence", required=True, type=FOLDER, help="A run, or a folder of runs.")
@click.option("--key", required=True, type=FILE, help="Public key of whoever signed the receipts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def gate(policy: Path, subjects: Path, evidence: Path, key: Path, as_json: bool) -> None:
    """Judge whether exactly these subjects may be promoted.

    Exit status 0: promote.  1: hold, with a line for each thing that is missing or wrong.  2: an input cannot be used.
    """
    with usable():
        asked = read_policy(policy)
        bits = read_subjects(subjects)
        public = load_public(key)
        watch_verifier()
        watch_gate(asked)
        roots = find_runs(evidence)
    runs: list[VerifiedRun] = []
    refused: list[Violation] = []
    for root in roots:
        try:
            runs.append(verify_run(root, public))
        except ReceiptError as error:
            refused += error.violations
    refused += decided_otherwise(runs)
    judgement = judge_gate(asked, bits, runs, refused, known=known_checks())
    click.echo(json.dumps(_plain(judgement), indent=2) if as_json else _told(judgement), nl=as_json)
    if judgement.held:
        raise click.exceptions.Exit(REFUSED)


def _told(judgement: Judgement) -> str:
    table = Table(title=f"Policy {judgement.policy}", title_justify="left")
    for heading in ("check", "verdict", "evidence", "run", "counter", ""):
        table.add_column(heading, overflow="fold")
    for judged in judgement.checks:
        said = judged.receipt.predicate if judged.receipt else None
        words = (
            (said.verdict, said.evidence_class, said.run_id, said.counter) if said else ("none", "", "", "")
        )
        table.add_row(judged.check, *words, "hold" if judged.held else "ok")
    console = Console(markup=False, highlight=False, width=140)
    with console.capture() as capture:
        console.print(table)
    verdict = "HOLD" if judgement.held else f"PROMOTE: nothing holds {judgement.policy}"
    return "\n".join([capture.get().rstrip(), *map(str, judgement.held), verdict, ""])


def _plain(judgement: Judgement) -> dict[str, Any]:
    return {
        "policy": judgement.policy,
        "promote": not judgement.held,
        "held": [{"about": held.about, "sentence": held.sentence} for held in judgement.held],
        "checks": [
            {
                "check": judged.check,
                "verdict": judged.receipt.predicate.verdict if judged.receipt else None,
                "run": judged.receipt.predicate.run_id if judged.receipt else None,
                "counter": judged.receipt.predicate.counter if judged.receipt else None,
                "held": judged.held,
            }
            for judged in judgement.checks
        ],
    }
