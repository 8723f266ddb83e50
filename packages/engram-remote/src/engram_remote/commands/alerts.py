"""`engram-remote alerts`: the shipped alert rules, over the metrics of `serve --metrics`."""

from importlib import resources

import click

RULES = "engram-remote.rules.yml"


@click.command("alerts", short_help="Print the shipped alert rules for a server's metrics.")
def command() -> None:
    """Print the shipped alert rules for Prometheus (rule_files)."""
    rules = resources.files("engram_remote.server").joinpath(RULES)
    click.echo(rules.read_text(encoding="utf-8"), nl=False)
