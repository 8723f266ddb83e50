"""How every command says that it cannot do what it was asked: one sentence on stderr."""

import click
from ofl.contract.records import printable


def complain(sentence: str) -> None:
    """The sentence in one line, whatever a path or a text in it holds."""
    click.echo(f"spark-overlay: {printable(sentence)}", err=True)
