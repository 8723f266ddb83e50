"""What commands share: exit statuses, and how an error becomes one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from qualification.policy import PolicyError
from qualification.receipts import verify_receipt, verify_run
from qualification.receipts.canary import BlindError, watch, watch_runs
from qualification.receipts.keys import KeyFileError
from qualification.subjects import SubjectsError

REFUSED = 1
UNUSABLE = 2
FILE = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


def stop(status: int, text: str) -> NoReturn:
    """Say why on standard error, and end."""
    click.echo(text, err=True)
    raise click.exceptions.Exit(status)


@contextmanager
def usable() -> Iterator[None]:
    """Within it, input that cannot be used ends the command with exit status 2 and a sentence."""
    try:
        yield
    except (KeyFileError, PolicyError, SubjectsError, BlindError) as error:
        stop(UNUSABLE, str(error))
    except OSError as error:
        stop(UNUSABLE, f"{error.filename}: {error.strerror}.")


def watch_verifier() -> None:
    """Show the verifier what it must refuse, before it judges anything.  Raises BlindError."""
    watch(verify_receipt)
    watch_runs(verify_run)
