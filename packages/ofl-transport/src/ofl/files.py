"""Files that somebody named, or that lie where we look: read without waiting for one, and put in their place whole.

Owns nothing else.  Must never wait for a pipe's other end, read without a bound, or let anybody see half of a file.
What fails is an OSError whose `strerror` says why and whose `filename` is the path that was given; the sentence around
it, with the option or setting that named the file, is the caller's.
"""

import contextlib
import errno
import io
import os
import secrets
import stat
from pathlib import Path

NAME_KEPT = 40
"""Characters of a file's name in that of its temporary file: even at four bytes each it must not become too long."""


class NotRegularFileError(OSError):
    """A folder, pipe, device or socket lies where a file was expected, or a link where none may be followed."""


class FileTooLongError(OSError):
    """The file is longer than the caller takes."""


def plain_descriptor(path: str | os.PathLike[str], *, follow: bool = True) -> int:
    """A descriptor of a regular file, to read; the caller closes it.

    follow: whether the path may be a symbolic link; where not, a link is an OSError with ELOOP.  Raises OSError at once
    whatever lies there: NotRegularFileError on what could keep a reader for ever, such as a pipe or a terminal.
    """
    name = _name_of(path)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        # Without O_NONBLOCK a pipe without a writer would keep us here.
        descriptor = os.open(name, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device that has no driver
            raise _not_regular(name) from None
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise NotRegularFileError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):
            raise _not_regular(name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_plain(path: str | os.PathLike[str], *, follow: bool = True) -> io.BufferedReader:
    """A regular file, open to read, for callers that look at its owner, mode or times too.

    follow, raises: as `plain_descriptor`.  Its length is not bounded: read it with `read_bounded` or piece by piece.
    """
    return open(_name_of(path), "rb", opener=lambda name, _: plain_descriptor(name, follow=follow))


def read_plain(path: str | os.PathLike[str], bytes_max: int, *, follow: bool = True) -> bytes:
    """All of a regular file of at most `bytes_max` bytes.

    follow: as `plain_descriptor`.  Raises OSError, of which FileTooLongError on a longer file.
    """
    with open_plain(path, follow=follow) as file:
        return read_bounded(file, bytes_max)


def read_bounded(file: io.BufferedReader, bytes_max: int) -> bytes:
    """The rest of a file of `open_plain`, at most `bytes_max` bytes.  Raises FileTooLongError, OSError."""
    data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise FileTooLongError(errno.EFBIG, f"longer than {bytes_max} bytes", file.name)
    return data


def publish(
    path: Path, data: bytes, *, mode: int | None = None, over: bool = True, synced: bool = False
) -> None:
    """The data at path: whoever looks sees what was there before, or all of it.

    mode: exactly; None: as the umask gives.  over: in place of a file that is there; else that is a FileExistsError.
    synced: its bytes and its name are on the disk on return, so that a loss of power takes neither.  Raises OSError
    naming path; then whatever was there is as it was, unless the disk failed after the name was given, and nothing lies
    beside it.
    """
    if not path.name:
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    _name_of(path)
    kept = path.name.lstrip(".")[:NAME_KEPT]
    beside = path.with_name(f".{kept}.{secrets.token_hex(4)}.part")
    try:
        _write_new(beside, data, mode, synced=synced)
        if over:
            os.replace(beside, path)
        else:
            os.link(beside, path)  # unlike a rename, never over a file that is there
        if synced:
            sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # not the name beside it
    finally:
        with contextlib.suppress(OSError):  # a folder that takes no file has none to take away
            os.unlink(beside)


def sync_folder(folder: Path) -> None:
    """The names in a folder are on the disk on return.  Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_new(path: Path, data: bytes, mode: int | None, *, synced: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666 if mode is None else mode), "wb") as file:
        file.write(data)
        file.flush()
        if mode is not None:
            os.fchmod(file.fileno(), mode)  # the umask may have taken rights
        if synced:
            os.fsync(file.fileno())


def _name_of(path: str | os.PathLike[str]) -> str:
    """The path as the kernel can take it.  Raises OSError where it cannot be one, which Python calls a ValueError."""
    name = os.fspath(path)
    if "\0" in name:
        raise OSError(errno.EINVAL, "a NUL byte stands in its name", name)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "its name cannot be encoded", name) from None
    return name


def _not_regular(name: str) -> NotRegularFileError:
    return NotRegularFileError(errno.EINVAL, "not a regular file", name)
