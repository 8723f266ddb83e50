"""The file that a command leaves besides what it shows: asked about before the work begins, then whole or not there."""

import os
from pathlib import Path

from ofl.files import publish

from engram_remote.problem import Problem


def check_place(option: str, path: Path | None) -> None:
    """Raises Problem where no file can be made there: told before an hour of work, and not after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise Problem(f"{option} {path}: its folder does not exist")


def write_report(path: Path, text: str) -> None:
    """Write it so that a reader sees all of it or what was there before.  Raises OSError.

    A pipe or a device that was named, such as /dev/stdout, stays what it is; no pipe's other end is waited for.
    """
    if path.exists() and not path.is_file():
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        os.set_blocking(descriptor, True)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return
    publish(path.resolve(), text.encode(), synced=True)
