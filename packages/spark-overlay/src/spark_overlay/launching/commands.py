"""`spark-overlay configs` and `spark-overlay unit`: what there is to launch, and the unit that launches it."""

import sys
from pathlib import Path

import click

from spark_overlay.complaint import complain
from spark_overlay.launching.layers import described, read_config, shipped
from spark_overlay.launching.problems import ConfigError
from spark_overlay.launching.unit import unit, write_unit

USAGE_STATUS = 2


@click.command("configs")
@click.argument("name", required=False)
def configs(name: str | None) -> None:
    """List the shipped launch configs, or print NAME's file with those that it extends.

    A file of your own begins with `extends = "NAME"` and holds what differs.
    """
    if name is None:
        for one, description in described(shipped()):
            click.echo(f"{one:<18} {description}")
        return
    try:
        for layer in read_config(name, "NAME"):
            click.echo(f"# --- {layer.source}\n{layer.text}", nl=False)
    except ConfigError as error:
        for problem in error.problems:
            complain(str(problem))
        sys.exit(USAGE_STATUS)


@click.command("unit")
@click.option(
    "--output",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Write spark-engine.service into this folder, /etc/systemd/system say.",
)
def unit_command(output: Path | None) -> None:
    """Print the systemd unit that launches an engine from the start of the host."""
    prefix = Path(sys.prefix)
    if output is None:
        click.echo(unit(prefix), nl=False)
        return
    try:
        path = write_unit(output, prefix)
    except OSError as error:
        complain(f"--output: {output} cannot be written to: {error.strerror}")
        sys.exit(USAGE_STATUS)
    click.echo(f"{path}: set /etc/default/spark-engine as it says, then `systemctl daemon-reload`", err=True)
