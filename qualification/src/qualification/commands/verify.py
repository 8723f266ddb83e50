"""`qualify verify`: silent about nothing, and never satisfied with less than everything."""

from pathlib import Path

import click

from qualification.commands.common import FILE, FOLDER, REFUSED, UNUSABLE, stop, usable, watch_verifier
from qualification.receipts import (
    ReceiptError,
    VerifiedReceipt,
    Violation,
    find_runs,
    verify_receipt,
    verify_runs,
)
from qualification.receipts.canonical import BYTES_MAX
from qualification.receipts.errors import printable
from qualification.receipts.files import read_given
from qualification.receipts.keys import SSlibKey, load_public


@click.command()
@click.argument("paths", nargs=-1, required=True, type=FILE)
@click.option("--key", required=True, type=FILE, help="Public key of whoever signed.")
@click.option("--evidence", type=FOLDER, help="Root of the evidence, where PATHS are single receipts.")
def verify(paths: tuple[Path, ...], key: Path, evidence: Path | None) -> None:
    """Verify runs, or folders of them; with --evidence, single receipts, apart from the runs that they are of.

    Exit status 1: something is wrong; every rule that is violated is told.  2: a file cannot be used, or the verifier
    let a broken receipt pass that it is shown first.
    """
    with usable():
        public = load_public(key)
        watch_verifier()
    try:
        if evidence is None:
            _runs(paths, public)
        else:
            _receipts(paths, public, evidence)
    except ReceiptError as error:
        stop(REFUSED, str(error))


def _runs(paths: tuple[Path, ...], key: SSlibKey) -> None:
    with usable():
        roots = [root for path in paths for root in find_runs(path)]
    if not roots:
        stop(UNUSABLE, "There is no run in the given folders.")
    for run in verify_runs(roots, key):
        for receipt in run.receipts:
            _say(receipt)
        held = f"all {len(run.receipts)} receipts and all evidence verify"
        click.echo(f"{printable(str(run.root))}: run {run.record.run_id}: {held}")


def _receipts(paths: tuple[Path, ...], key: SSlibKey, root: Path) -> None:
    found: list[Violation] = []
    verified: list[VerifiedReceipt] = []
    for path in paths:
        with usable():
            data = read_given(path, BYTES_MAX)
        try:
            verified.append(verify_receipt(data, key, root, str(path)))
        except ReceiptError as error:
            found += error.violations
    if found:
        raise ReceiptError(found)
    for receipt in verified:
        _say(receipt)
    click.echo("These receipts verify; whether their runs are complete was not looked at.")


def _say(receipt: VerifiedReceipt) -> None:
    said = receipt.predicate
    click.echo(
        f"{printable(receipt.where)}: {said.check.name}: {said.verdict}, {said.evidence_class}, counter {said.counter}"
    )
