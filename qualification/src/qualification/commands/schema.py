"""`qualify schema`: the JSON Schemas of what is read and written."""

import click

from qualification.receipts.schema import MODELS, text


@click.command()
@click.argument("name", required=False, type=click.Choice(sorted(MODELS)))
def schema(name: str | None) -> None:
    """Print the JSON Schema (2020-12) of NAME; without one, the names."""
    if name is None:
        for one in sorted(MODELS):
            click.echo(one)
    else:
        click.echo(text(name), nl=False)
