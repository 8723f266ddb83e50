"""`engram-remote check`: whether every row that reaches this host is the row of its local shard."""

import json
from pathlib import Path

import click
from ofl.contract.engram_v1.layout import BATCH_ROWS_MAX, RANKS_MAX
from ofl.contract.records import printable
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from engram_remote.check.cases import PREFILL_ROWS
from engram_remote.check.report import CheckReport, refusals_table, rows_table
from engram_remote.check.ways import (
    CheckOptions,
    check_refusals,
    check_way,
    expected_tables,
    random_rows_in_all,
    ways,
)
from engram_remote.commands.consoles import plain_console
from engram_remote.commands.reports import check_place, write_report
from engram_remote.problem import Problem, problems_as_sentences
from engram_remote.server.preflight import PreflightError
from engram_remote.tables.manifest import read_manifest

MS = 1_000_000


@click.command("check", short_help="Compare every row that arrives with the local shard.")
@click.argument("folder", metavar="TABLES", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="ENDPOINT",
    help="A server: tcp://host:port?bind=address, rdma://... or shm://name.  Repeatable.  "
    "[default: local shards only]",
)
@click.option(
    "--rank", type=click.IntRange(0, RANKS_MAX - 1), default=0, show_default=True, help="Whose shards."
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=800_000,
    show_default=True,
    help="Random rows over each endpoint and from the shards, besides every corner case.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random rows.")
@click.option(
    "--batch-rows",
    type=click.IntRange(1, BATCH_ROWS_MAX),
    default=PREFILL_ROWS,
    show_default=True,
    help="Most rows of one lookup; the server must allow as many.",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(1, 600_000),
    default=10_000,
    show_default=True,
    help="Of one lookup; one that is late counts as not checked.",
)
@click.option("--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write what was found."
)
def command(
    folder: Path,
    endpoints: tuple[str, ...],
    rank: int,
    rows: int,
    seed: int,
    batch_rows: int,
    timeout_ms: int,
    key_file: Path | None,
    json_file: Path | None,
) -> None:
    """Ask for rows from this host, over each endpoint and from the local shards, and compare all of them, byte for
    byte, with the shards as plain Python reads them, and with the generator where the tables are synthetic.

    Then demand what a server must refuse.  Exits with 0 only if no row was wrong, every row came the way that was
    checked and every refusal was as it must be; else with 1, or with 2 and a sentence where nothing could be checked.
    """
    options = CheckOptions(folder, rank, endpoints, rows, seed, batch_rows, timeout_ms * MS, key_file)
    check_place("--json", json_file)
    with problems_as_sentences():
        report = _check(options)
        _show(report)
        if json_file is not None:
            write_report(json_file, json.dumps(report.to_json(), indent=1) + "\n")
    if not report.passed:
        raise SystemExit(1)


def _check(options: CheckOptions) -> CheckReport:
    manifest = read_manifest(options.tables)
    if options.rank >= manifest.ranks:
        raise Problem(f"--rank: {options.rank} is not one of the manifest's {manifest.ranks}")
    tables = expected_tables(options, manifest)
    with _progress() as progress:
        task = progress.add_task("check", total=random_rows_in_all(options))
        try:
            reports = [
                check_way(way, manifest, tables, options.seed, lambda more: progress.advance(task, more))
                for way in ways(options)
            ]
        except PreflightError as error:
            raise Problem(f"--batch-rows: {error}") from error
    refusals = list(check_refusals(options, manifest))
    return CheckReport(manifest.identity, options.rank, options.seed, reports, refusals)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=plain_console(stderr=True))


def _show(report: CheckReport) -> None:
    console = plain_console(width=None if Console().is_terminal else 160)
    console.print(rows_table(report))
    if report.refusals:
        console.print(refusals_table(report))
    for one in report.rows:
        for fault in one.faults:
            click.echo(printable(f"{one.way}: {fault}"), err=True)
    for refusal in report.refusals:
        if not refusal.passed:
            said = f"{refusal.way}: {refusal.name}: {refusal.got} ({refusal.detail})"
            click.echo(printable(said), err=True)
    verdict = "passed" if report.passed else "FAILED"
    click.echo(f"{verdict}: {report.rows_checked:,} rows checked, {report.rows_wrong:,} wrong")
