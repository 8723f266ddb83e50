"""Files that an operator named: reading one without waiting for it, and putting one in its place whole.

Owns nothing else.  Must never wait for a pipe's other end, read without a bound, or let anybody see half of a file.
What fails is an OSError whose `strerror` says why; the sentence around it is the caller's.
"""

import errno
import io
import os
import secrets
import stat
from pathlib import Path

NAME_KEPT = 40
"""Characters of a file's name in that of its temporary file: even at four bytes each it must not become too long."""


def open_plain(path: Path) -> io.BufferedReader:
    """Open a regular file to read.  Raises OSError, on a pipe or a device too, which could keep us for ever."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a NUL byte stands in its name", str(path))
    file = open(path, "rb", opener=_at_once)  # noqa: SIM115 - the caller's to close
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read_plain(path: Path, bytes_max: int) -> bytes:
    """What is in a regular file; of a larger one bytes_max + 1 bytes, so that its length tells.  Raises OSError."""
    with open_plain(path) as file:
        return file.read(bytes_max + 1)


def publish(
    path: Path, data: bytes, *, mode: int | None = None, over: bool = True, synced: bool = False
) -> None:
    """The data at path: whoever looks sees what was there before, or all of it.

    mode: exactly; None: as the umask gives.  over: in place of a file that is there; else that is a FileExistsError.
    synced: on its disk on return.  Raises OSError; then whatever was there is as it was, and nothing lies beside it.
    """
    if not path.name:
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    beside = path.with_name(f".{path.name[:NAME_KEPT]}.{secrets.token_hex(4)}")
    created = os.open(
        beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else mode
    )
    try:
        with os.fdopen(created, "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if synced:
                os.fsync(file.fileno())
        if over:
            os.replace(beside, path)
        else:
            os.link(beside, path)  # unlike a rename, never over a file that is there
    finally:
        beside.unlink(missing_ok=True)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
