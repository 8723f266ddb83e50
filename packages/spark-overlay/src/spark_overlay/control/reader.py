"""Whether the control file changed: one stat, and a reading only where it did.

Owns nothing but the facts of the last look.  Must never raise for what stands in the file, or block on what it is.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spark_overlay.control.files import read_record
from spark_overlay.control.record import ControlFileError, ControlRecord

Facts = tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """One state of the file.  record: None where it cannot be obeyed, for problem; a new one where there is no file.

    present: whether there is a file.
    """

    record: ControlRecord | None
    problem: str = ""
    present: bool = True


class Source(Protocol):
    """Where records come from: a file, or a simulation's twin of it.  name: for logs and figures."""

    name: str

    def poll(self) -> Reading | None:
        """What changed since the last call; None where nothing did.  The first call always tells."""


class FileSource:
    """A control file.  One thread polls it.

    read: a record from a path; see `files.read_record`.
    """

    def __init__(self, path: Path, read: Callable[[Path], ControlRecord | None] = read_record) -> None:
        self._path, self._read = path, read
        self._facts: Facts | None = None
        self.name = str(path)

    def poll(self) -> Reading | None:
        """See `Source`.  A stat is 1 to 2 us on a local file system; it is all that a quiet file costs."""
        facts = self._look()
        if facts == self._facts:
            return None
        # The facts of before the reading: a file replaced in between is read once more.
        self._facts = facts
        try:
            record = self._read(self._path)
        except ControlFileError as error:
            return Reading(None, str(error))
        if record is None:
            return Reading(ControlRecord(), present=False)
        return Reading(record)

    def _look(self) -> Facts:
        """What tells one state of the file from another; empty where there is none, an errno where it is hidden."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return ()
        except OSError as error:
            return (error.errno or 0,)
        # Owner and mode too: a refused file may be repaired by chown or chmod alone, which its ctime says.
        return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
