"""Puts a text in its place whole.  Must never let a reader see half of it, nor leave a part where it fails."""

import contextlib
import errno
import os
from pathlib import Path

NAME_KEPT = 40
"""Characters of a file's name in that of its temporary file: even at four bytes each it must not become too long."""


def write_whole(path: Path, text: str) -> None:
    """Temporary file, fsync, rename.  Raises OSError naming path; then whatever was there is as it was."""
    if not path.name:
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name[:NAME_KEPT]}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):  # a folder that takes no file has none to take away
            temporary.unlink(missing_ok=True)
