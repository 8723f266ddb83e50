"""The builder's and the server's disk: what is on it, how much of it is free, and how long a text on it may be."""

import os
from contextlib import suppress
from pathlib import Path

from engram_remote.tables.errors import BuildError

GIB = 1 << 30
TEXT_BYTES_MAX = 256 << 20
"""Of a file that somebody names, or that lies beside the tables: no configuration, index or record is as long."""


def show_later_stores(descriptor: int) -> None:
    """Have every later store through a mapping of the file change its times.

    A page that is dirty already takes stores unseen; once it is written back, the next one is noticed.  What the disk
    says about that is no concern of a reader.
    """
    with suppress(OSError):
        os.fdatasync(descriptor)


def require_space(folder: Path, need: int) -> None:
    """Raises BuildError, with need and have, where the file system has less room than `need` bytes."""
    status = os.statvfs(folder)
    have = status.f_bavail * status.f_frsize
    if need > have:
        raise BuildError(
            f"{folder}: the tables need {need} bytes ({need / GIB:.2f} GiB) there, and {have} bytes "
            f"({have / GIB:.2f} GiB) are free"
        )
