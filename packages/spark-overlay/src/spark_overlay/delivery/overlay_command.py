"""`spark-overlay overlay build|check`: the command lines over `overlay_file`."""

import json
import sys
from pathlib import Path

import click

from spark_overlay.complaint import complain
from spark_overlay.delivery.errors import DeliveryError
from spark_overlay.delivery.overlay_file import State, as_json, build, check_file, check_image

STATUS = {State.OVERLAY: 0, State.STOCK: 3, State.OTHER: 4}
"""Exit status of `check` by what the file is; 2: it could not be judged."""


@click.group("overlay")
def overlay() -> None:
    """The file overlay for images that are mounted read-only and take no plugin: build it, or judge what is mounted."""


@overlay.command("build")
@click.option(
    "--base",
    required=True,
    type=click.Path(path_type=Path),
    help="The image's own vllm/v1/worker/gpu/spec_decode/__init__.py.",
)
@click.option("--version", "version", required=True, help="vLLM's version in the image, such as 0.32.0.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A new folder for the tree.")
@click.option("--wheel", type=click.Path(path_type=Path), help="spark-overlay's wheel, for the manifest.")
@click.option("--json", "as_object", is_flag=True, help="Print one JSON object.")
def build_command(base: Path, version: str, output: Path, wheel: Path | None, as_object: bool) -> None:
    """Write vLLM's file with one guarded branch, below the path that it has in site-packages, and a manifest.

    Refused on any base file whose sha256 is not pinned for that version (status 2).
    """
    try:
        built = build(base, version, output, wheel=wheel)
    except DeliveryError as error:
        complain(str(error))
        sys.exit(error.status)
    if as_object:
        values = {
            "overlay": str(built.overlay),
            "manifest": str(built.manifest),
            "unchanged": built.unchanged,
        }
        values |= {"base_sha256": built.base_sha256, "overlay_sha256": built.overlay_sha256}
        click.echo(json.dumps(values, indent=1))
        return
    click.echo(f"{built.overlay}{' (was there already)' if built.unchanged else ''}")
    click.echo(f"base sha256     {built.base_sha256}")
    click.echo(f"overlay sha256  {built.overlay_sha256}")


@overlay.command("check")
@click.option(
    "--image-root", type=click.Path(path_type=Path), help="An image's root, or its site-packages folder."
)
@click.option("--file", "file", type=click.Path(path_type=Path), help="The installed or mounted file itself.")
@click.option(
    "--version", "version", default="", help="vLLM's version; else the installed one, or the file's."
)
@click.option("--json", "as_object", is_flag=True, help="Print one JSON object.")
def check_command(image_root: Path | None, file: Path | None, version: str, as_object: bool) -> None:
    """Say whether the file is our overlay for this version (status 0), stock (3) or something else (4).

    Status 2: it could not be judged.
    """
    try:
        if (image_root is None) == (file is None):
            raise DeliveryError("one of --image-root and --file is needed")
        if file is not None:
            verdict = check_file(file, version)
        else:
            assert image_root is not None
            verdict = check_image(image_root, version)
    except DeliveryError as error:
        complain(str(error))
        sys.exit(error.status)
    click.echo(as_json(verdict) if as_object else verdict.sentence)
    sys.exit(STATUS[verdict.state])
