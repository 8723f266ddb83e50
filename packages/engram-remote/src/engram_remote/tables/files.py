"""Files that are whole or not there: written beside, forced to disk, renamed, and the folder forced too.

And files that are read whole, whoever named them: never waited for, never without a bound.
"""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from engram_remote.tables.errors import BuildError

GIB = 1 << 30
NAME_KEPT = 40
"""Characters of a file's name in that of the one beside it, which must not become too long."""
TEXT_BYTES_MAX = 256 << 20
"""Of a file that somebody names: no configuration, index or run is as long."""


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


def open_plain(path: Path) -> int:
    """A descriptor of a regular file, to read.  Raises OSError, on a pipe or a device too, which could keep us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return descriptor


def read_plain(path: Path, bytes_max: int = TEXT_BYTES_MAX) -> bytes:
    """All of a regular file.  Raises OSError, on a longer one too."""
    with open(open_plain(path), "rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"is longer than {bytes_max} bytes", str(path))
    return data


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
