"""The control file on disk: read by the rules of the key file, replaced as a whole, changed under a lock.

Owns what makes a file one that an engine obeys: a regular file of the engine's user or of root that nobody else may
write.  Must never wait without a bound, or show a reader half of a record.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ofl.files import NotRegularFileError, open_plain, publish

from spark_overlay.control.record import RECORD_BYTES_MAX, ControlFileError, ControlRecord, parse_record

LOCK_WAIT_S = 5.0
"""A writer holds the lock for one small write; whoever holds it longer is stuck."""
LOCK_RETRY_S = 0.02
MODE = 0o644
"""Of the file: root writes it and the engine's user reads it.  It holds no secret."""


def read_record(path: Path, *, to_change: bool = False) -> ControlRecord | None:
    """The record at path, None where there is no file.

    to_change: not to obey it but to write the next one; root may do so with a file of any user.
    Raises ControlFileError where this process may not obey the file, or cannot read it as a record.
    """
    try:
        file = open_plain(path, follow=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ControlFileError("is a symbolic link, which may come to mean another file") from None
        if isinstance(error, NotRegularFileError):
            raise ControlFileError("is not a regular file") from None
        raise ControlFileError(f"cannot be opened: {error.strerror}") from None
    with file:
        judge(os.fstat(file.fileno()), of_any_user=to_change and os.geteuid() == 0)
        try:
            # One byte more than a record may have: its parser says what is wrong with it.
            data = file.read(RECORD_BYTES_MAX + 1)
        except OSError as error:
            raise ControlFileError(f"cannot be read: {error.strerror}") from None
    return parse_record(data)


def judge(facts: os.stat_result, *, of_any_user: bool = False) -> None:
    """Raise ControlFileError unless a file with these facts may be obeyed by this process."""
    if not stat.S_ISREG(facts.st_mode):
        raise ControlFileError("is not a regular file")
    user = os.geteuid()
    if facts.st_uid not in (user, 0) and not of_any_user:
        allowed = "user 0" if user == 0 else f"user {user} or to root"
        raise ControlFileError(f"belongs to user {facts.st_uid} and must belong to {allowed}")
    # An access list that lets anybody else write shows in the bits of the group.
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(facts.st_mode)
        raise ControlFileError(f"has mode {mode:04o}, which lets other users write it: 'chmod go-w' it")


def changed(path: Path, change: Callable[[ControlRecord], ControlRecord]) -> ControlRecord:
    """Replace the record at path by what change makes of it, under the lock; the new record.

    change: gets the record that is there, or a new one where there is no file.  A file that cannot be read as a
    record is an error and stays: somebody else's order may stand in it.  Raises ControlFileError.
    """
    read_record(path, to_change=True)  # so that no lock is left beside a file that is none of ours
    try:
        with _locked(path):
            record = change(read_record(path, to_change=True) or ControlRecord())
            publish(path, record.encoded(), mode=MODE, synced=True)
    except OSError as error:
        raise ControlFileError(f"cannot be written: {error.strerror}") from None
    return record


def lock_path(path: Path) -> Path:
    """The file beside it that writers lock."""
    return path.with_name(f".{path.name}.lock")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a control file.  Raises OSError, and ControlFileError after LOCK_WAIT_S."""
    file = _open_lock(lock_path(path))
    try:
        end_s = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # flock itself knows no deadline.
                if time.monotonic() >= end_s:
                    raise ControlFileError(
                        f"is locked by another writer for {LOCK_WAIT_S:g} s ({lock_path(path)})"
                    ) from None
                time.sleep(LOCK_RETRY_S)
        yield
    finally:
        os.close(file)


def _open_lock(path: Path) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # First without O_CREAT: in a sticky folder the kernel refuses even root another user's file with it.
        return os.open(path, flags)
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644)
