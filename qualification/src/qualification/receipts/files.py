"""Sizes and digests of a run's files.  No path leaves the root, no symbolic link is followed, nothing waits."""

import errno
import hashlib
import os
import stat
from contextlib import ExitStack
from pathlib import Path

_CHUNK_BYTES = 1 << 20


class Files:
    """Those below one root, each measured once: what several receipts name is read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._measured: dict[str, tuple[int, str]] = {}

    def measure(self, path: str) -> tuple[int, str]:
        """Size and SHA-256, through one open file.  path: relative, `/` between its parts, none of them "..".

        Each part is opened below the one before, so that nothing swapped meanwhile leads elsewhere.  Raises OSError:
        ELOOP at a symbolic link, EINVAL where it is no regular file.
        """
        if path not in self._measured:
            self._measured[path] = _measure(self.root, path)
        return self._measured[path]

    def read(self, path: str, bytes_max: int = 64 << 20) -> bytes:
        """Its content, at most one byte more than `bytes_max`.  path, raises: as `measure`."""
        with ExitStack() as stack:
            file = _open_file(stack, self.root, path)
            parts, left = [], bytes_max + 1
            while left and (chunk := os.read(file, min(left, _CHUNK_BYTES))):
                parts.append(chunk)
                left -= len(chunk)
        return b"".join(parts)


def read_given(path: Path, bytes_max: int) -> bytes:
    """A file that a person named, which may be a pipe: at most one byte more than `bytes_max`.  Raises OSError."""
    with path.open("rb") as source:
        return source.read(bytes_max + 1)


def _measure(root: Path, path: str) -> tuple[int, str]:
    with ExitStack() as stack:
        file = _open_file(stack, root, path)
        digest, size = hashlib.sha256(), 0
        while chunk := os.read(file, _CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _open_file(stack: ExitStack, root: Path, path: str) -> int:
    *folders, name = path.split("/")
    at = _open(stack, str(root), os.O_DIRECTORY, None)
    for folder in folders:
        at = _open(stack, folder, os.O_NOFOLLOW | os.O_PATH, at)
        mode = os.fstat(at).st_mode
        if not stat.S_ISDIR(mode):
            number = errno.ELOOP if stat.S_ISLNK(mode) else errno.ENOTDIR
            raise OSError(number, os.strerror(number), path)
    file = _open(stack, name, os.O_NOFOLLOW | os.O_NONBLOCK, at)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise OSError(errno.EINVAL, "no regular file", path)
    return file


def _open(stack: ExitStack, name: str, flags: int, at: int | None) -> int:
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=at)
    stack.callback(os.close, file)
    return file
