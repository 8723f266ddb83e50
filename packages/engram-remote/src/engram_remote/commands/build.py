"""`engram-remote build`: a folder of shards from a checkpoint, or synthetic ones of any size."""

import json
from contextlib import closing
from pathlib import Path

import click
from ofl.contract.engram_v1.layout import COLUMNS_MAX, RANKS_MAX

from engram_remote.commands.bars import progress_bar
from engram_remote.problem import Problem, problems_as_sentences
from engram_remote.tables.build import build
from engram_remote.tables.errors import BuildError, TableError
from engram_remote.tables.heads import ROWS_MAX, read_head_layout
from engram_remote.tables.layout import SCALE_BLOCK
from engram_remote.tables.shard_job import CHUNK_BYTES, BuildOptions
from engram_remote.tables.source import CheckpointTables, Source
from engram_remote.tables.synthetic import SyntheticTables, even_heads

SYNTHETIC_LAYERS = "1,14"
SYNTHETIC_COLUMNS = 256


@click.command("build", short_help="Make a folder of shards.")
@click.argument("paths", nargs=-1, required=True, metavar="[SOURCE] DEST", type=click.Path(path_type=Path))
@click.option(
    "--ranks", type=click.IntRange(1, RANKS_MAX), required=True, help="Tensor-parallel ranks of the engine."
)
@click.option(
    "--rank",
    type=click.IntRange(0, RANKS_MAX - 1),
    help="Write this rank's files alone; the manifest, and so the identity, is that of all.  [default: all]",
)
@click.option(
    "--config",
    type=click.Path(exists=True, path_type=Path),
    help="The model's config.json.  [default: SOURCE's]",
)
@click.option("--scale-block", type=click.IntRange(1, COLUMNS_MAX), default=SCALE_BLOCK, show_default=True,
              help="Values that share a scale.")  # fmt: skip
@click.option("--chunk-mib", type=click.IntRange(1, 1024), default=CHUNK_BYTES >> 20, show_default=True,
              help="What is digested at a time, and packed in memory four times.")  # fmt: skip
@click.option("--synthetic", is_flag=True, help="Rows from a generator instead of SOURCE.")
@click.option("--rows", type=click.IntRange(1, ROWS_MAX), help="Of each synthetic layer.")
@click.option(
    "--columns",
    type=click.IntRange(1, COLUMNS_MAX),
    help=f"Of synthetic rows.  [default: {SYNTHETIC_COLUMNS}]",
)
@click.option("--layers", help=f"Synthetic layers, by number.  [default: {SYNTHETIC_LAYERS}]")
@click.option(
    "--seed", type=click.IntRange(0, (1 << 53) - 1), default=0, show_default=True, help="Of synthetic rows."
)
@click.option("--json", "as_json", is_flag=True, help="Print identity and sizes as JSON.")
def command(
    paths: tuple[Path, ...],
    ranks: int,
    rank: int | None,
    config: Path | None,
    scale_block: int,
    chunk_mib: int,
    synthetic: bool,
    rows: int | None,
    columns: int | None,
    layers: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Make a folder of shards, one for each Engram layer and rank, and its manifest.

    SOURCE is a checkpoint in safetensors as vLLM loads it.  What was interrupted goes on where it stopped when
    the same command is given again; shards get their names when they are complete, and the manifest comes last.
    """
    with problems_as_sentences():
        if len(paths) != (1 if synthetic else 2):
            raise Problem(
                f"{'DEST' if synthetic else 'SOURCE and DEST'}: is what must be named, not {len(paths)} paths"
            )
        if synthetic:
            source: Source = _synthetic(config, rows, columns, layers, ranks, scale_block, seed)
        else:
            stray = {"--rows": rows, "--columns": columns, "--layers": layers}
            if given := [name for name, value in stray.items() if value is not None]:
                raise Problem(f"{given[0]}: belongs to --synthetic")
            source = CheckpointTables(paths[0], config, scale_block)
        with closing(source), progress_bar() as bar:
            options = BuildOptions(ranks=ranks, rank=rank, chunk_bytes=chunk_mib << 20)
            manifest = build(source, paths[-1], options, bar.step)
    table_bytes = sum(shard.bytes for shard in manifest.shards)
    if as_json:
        facts = {"identity": manifest.identity, "shards": len(manifest.shards), "bytes": table_bytes}
        click.echo(json.dumps(facts))
    else:
        click.echo(f"{manifest.identity}  {len(manifest.shards)} shards, {table_bytes} bytes in all")


def _synthetic(
    config: Path | None,
    rows: int | None,
    columns: int | None,
    layers: str | None,
    ranks: int,
    scale_block: int,
    seed: int,
) -> SyntheticTables:
    """Tables of the given sizes, or of a model's."""
    try:
        if config is not None:
            if rows is not None or columns is not None or layers is not None:
                raise Problem("--config: says rows, columns and layers; leave those out")
            return SyntheticTables(seed, read_head_layout(config), scale_block)
        if rows is None:
            raise Problem("--rows: is needed with --synthetic, unless --config says them")
        sizes = dict.fromkeys(_layer_numbers(layers or SYNTHETIC_LAYERS), rows)
        return SyntheticTables(seed, even_heads(sizes, columns or SYNTHETIC_COLUMNS, ranks), scale_block)
    except TableError:
        raise
    except ValueError as error:
        raise BuildError(str(error)) from error


def _layer_numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() for part in parts) or len(set(parts)) != len(parts):
        raise Problem(f"--layers: numbers without repetition are needed, as in 1,14, not {text!r}")
    return [int(part) for part in parts]
