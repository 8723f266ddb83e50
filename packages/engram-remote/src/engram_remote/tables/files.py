"""Files that are whole or not there: written beside, forced to disk, renamed, and the folder forced too."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from engram_remote.tables.errors import BuildError

GIB = 1 << 30
NAME_KEPT = 40
"""Characters of a file's name in that of the one beside it, which must not become too long."""


def force_folder(folder: Path) -> None:
    """Make a folder's names durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Give a file this content: a reader, also after a loss of power, finds all of it or what was there before.

    Raises OSError naming path.
    """
    kept = path.name.lstrip(".")[:NAME_KEPT]
    beside = path.with_name(f".{kept}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # not the name beside it
    finally:
        with suppress(OSError):  # a folder that takes no file has none to take away
            beside.unlink(missing_ok=True)
    force_folder(path.parent)


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
