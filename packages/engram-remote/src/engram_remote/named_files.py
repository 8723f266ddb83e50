"""Files that somebody named, or that lie where we look: read without waiting for a pipe, and up to a bound."""

import errno
import os
from pathlib import Path
from stat import S_ISREG

TEXT_BYTES_MAX = 256 << 20
"""Of a file that somebody names: no configuration, index or run is as long."""


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
