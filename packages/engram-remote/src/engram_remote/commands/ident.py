"""`engram-remote ident`: what a folder of shards is, from its manifest alone."""

import json
from pathlib import Path

import click
from rich.table import Table

from engram_remote.commands.consoles import plain_console
from engram_remote.problem import problems_as_sentences
from engram_remote.tables.manifest import Manifest, read_manifest


@click.command("ident", short_help="Print identity and shards.")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(folder: Path, as_json: bool) -> None:
    """Print a folder's identity and its shards, after the manifest was checked; reads no shard."""
    with problems_as_sentences():
        manifest = read_manifest(folder)
    if as_json:
        click.echo(json.dumps(_facts(folder, manifest), indent=1))
        return
    click.echo(f"identity {manifest.identity}")
    click.echo(
        f"rows of {manifest.columns} values and {manifest.scales} scales, {manifest.row_bytes} bytes; "
        f"{manifest.ranks} ranks"
    )
    table = Table("layer", "rank", "rows", "bytes", "sha256", "here")
    table.add_column("shard", overflow="fold")
    for shard in manifest.shards:
        here = "yes" if (folder / shard.file).is_file() else "no"
        span = f"{shard.row_start} to {shard.row_end}"
        numbers = (str(shard.layer), str(shard.rank), span, f"{shard.bytes:,}")
        table.add_row(*numbers, shard.sha256[:12], here, shard.file)
    plain_console().print(table)


def _facts(folder: Path, manifest: Manifest) -> dict[str, object]:
    leave_out = {"chunks", "chunk_bytes"}
    shards = [
        {**shard.model_dump(exclude=leave_out), "here": (folder / shard.file).is_file()}
        for shard in manifest.shards
    ]
    return {**manifest.model_dump(mode="json", exclude={"shards"}), "shards": shards}
