"""What an operator got wrong: one sentence on stderr and exit status 2, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from ofl.contract.records import printable
from ofl.errors import TransportError

from engram_remote.tables.errors import TableError


class Problem(click.ClickException):
    """The command cannot do what it was asked; the text is one sentence, in one line whatever a path in it holds."""

    exit_code = 2

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))


@contextmanager
def problems_as_sentences() -> Iterator[None]:
    """Turns the errors that name an operator's mistake into Problem.  Anything else is a defect and stays."""
    try:
        yield
    except (TransportError, TableError) as error:
        raise Problem(str(error)) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Problem(f"{where}{error.strerror or error}") from error
