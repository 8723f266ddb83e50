"""The verdicts of a run as a table for a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from qualification.receipts.statement import Statement

WIDTH = 140


def matrix(statements: Sequence[Statement]) -> str:
    """One line a check: its verdict, what became of its subcases, the first sentence that says why not."""
    table = Table(title_justify="left", title=_title(statements))
    for heading in ("check", "verdict", "passed", "failed", "not seen", "why"):
        table.add_column(heading, overflow="fold")
    for predicate in (one.predicate for one in statements):
        counts = predicate.coverage
        why = next((one.why for one in predicate.conclusions if one.found != "passed"), "")
        why = " ".join([*predicate.notes, why]).strip()
        counted = (counts.passed, counts.failed, counts.not_run)
        table.add_row(predicate.check.name, str(predicate.verdict), *map(str, counted), why)
    console = Console(markup=False, highlight=False, width=WIDTH)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()


def _title(statements: Sequence[Statement]) -> str:
    predicate = statements[0].predicate
    return f"run {predicate.run_id}: {' and '.join(sorted({one.predicate.evidence_class for one in statements}))}"
