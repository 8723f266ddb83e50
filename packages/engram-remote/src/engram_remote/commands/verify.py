"""`engram-remote verify`: whether the shards of a folder are what its manifest says."""

import json
from pathlib import Path

import click
from ofl.contract.engram_v1.layout import RANKS_MAX
from ofl.contract.records import printable
from rich.table import Table

from engram_remote.commands.bars import progress_bar
from engram_remote.commands.consoles import plain_console
from engram_remote.problem import Problem, problems_as_sentences
from engram_remote.tables.errors import ShardError
from engram_remote.tables.manifest import read_manifest
from engram_remote.tables.record import Verified
from engram_remote.tables.verify import ShardReport, chosen_shards, default_threads, verify_shard


@click.command("verify", short_help="Compare shards with their manifest.")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--rank", type=click.IntRange(0, RANKS_MAX - 1), help="Only this rank's shards.  [default: all]"
)
@click.option(
    "--full", is_flag=True, help="Digest everything again, chunks and whole files, whatever is recorded."
)
@click.option("--threads", type=click.IntRange(1, 1024), help="[default: one for each core]")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def command(folder: Path, rank: int | None, full: bool, threads: int | None, as_json: bool) -> None:
    """Compare every shard's size, header and digests with the manifest.

    A file that was digested before and whose stat is the same since is not read again, unless --full is given.
    Exits with 2 after one line for each shard that is not what it should be.
    """
    with problems_as_sentences():
        manifest = read_manifest(folder)
        try:
            shards = chosen_shards(manifest, rank)
        except ValueError as error:
            raise Problem(f"--rank: {rank} is not one of the manifest's {manifest.ranks}") from error
        total, verified = sum(shard.bytes for shard in shards), Verified(folder)
        reports: list[ShardReport] = []
        failures: list[ShardError] = []
        with progress_bar() as bar:
            for shard in shards:
                try:
                    report = verify_shard(
                        folder,
                        manifest,
                        shard,
                        verified=verified,
                        full=full,
                        threads=threads or default_threads(),
                        advance=lambda done: bar.step("verify", done, total),
                    )
                    reports.append(report)
                except ShardError as error:
                    failures.append(error)
    _show(manifest.identity, reports, failures, as_json)
    if failures:
        raise Problem(f"{folder}: {len(failures)} of {len(shards)} shards are not what the manifest says")


def _show(identity: str, reports: list[ShardReport], failures: list[ShardError], as_json: bool) -> None:
    for failure in failures:
        click.echo(printable(str(failure)), err=True)
    if as_json:
        shards = [
            {
                "file": one.shard.file,
                "bytes": one.shard.bytes,
                "digested": one.digested,
                "seconds": one.seconds,
            }
            for one in reports
        ]
        wrong = [{"file": one.file.name, "field": one.field, "detail": one.detail} for one in failures]
        click.echo(json.dumps({"identity": identity, "verified": shards, "failed": wrong}, indent=1))
        return
    table = Table("shard", "rows", "bytes", "how", "seconds", title=f"identity {identity}")
    for one in reports:
        how = "digested" if one.digested else "as recorded"
        table.add_row(
            one.shard.file, f"{one.shard.rows:,}", f"{one.shard.bytes:,}", how, f"{one.seconds:.2f}"
        )
    plain_console().print(table)
