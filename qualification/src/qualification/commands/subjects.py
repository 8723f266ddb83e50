"""`qualify subjects`: digests of what is to be promoted."""

from pathlib import Path

import click

from qualification.commands.common import FILE, usable
from qualification.receipts.statement import Kind
from qualification.subjects import Sources, collect, text


@click.command()
@click.option("--out", required=True, type=FILE, help="The subjects file.")
@click.option("--wheel", "wheels", multiple=True, type=FILE, help="A wheel of ours.")
@click.option("--native-library", "libraries", multiple=True, type=FILE, help="A library that is loaded.")
@click.option("--overlay-file", "overlays", multiple=True, type=FILE, help="A file laid over the engine's.")
@click.option(
    "--checkpoint", "checkpoints", multiple=True, type=FILE, help="Folder of a drafter's checkpoint."
)
@click.option("--table-manifest", "manifests", multiple=True, type=FILE, help="Manifest of a remote table.")
@click.option(
    "--launch-config", "configs", multiple=True, type=FILE, help="What the engine is launched with."
)
@click.option("--engine-version", default="", help='Engine and version: "vllm 0.33.0".')
@click.option("--engine-root", type=FILE, default=Path(), help="Folder that engine files are relative to.")
@click.option("--engine-file", "engine_files", multiple=True, help="A patched file of the engine, relative.")
def subjects(
    out: Path,
    wheels: tuple[Path, ...],
    libraries: tuple[Path, ...],
    overlays: tuple[Path, ...],
    checkpoints: tuple[Path, ...],
    manifests: tuple[Path, ...],
    configs: tuple[Path, ...],
    engine_version: str,
    engine_root: Path,
    engine_files: tuple[str, ...],
) -> None:
    """Write the digests of exactly these bits.  Exit status 2: one cannot be read."""
    given: dict[Kind, tuple[Path, ...]] = {
        "wheel": wheels,
        "native-library": libraries,
        "overlay-file": overlays,
        "table-manifest": manifests,
        "launch-config": configs,
    }
    files = tuple((kind, path) for kind, paths in given.items() for path in paths)
    sources = Sources(files, checkpoints, engine_version, engine_root, engine_files)
    with usable():
        made = collect(sources)
        out.write_text(text(made), encoding="utf-8")
    for one in made.subjects:
        click.echo(f"{one.digest.sha256}  {one.name}")
