"""One file of observations: a line per record, at once.  Shared by every package whose hooks see an engine.

Owns the file, its indexes and what could not be written.  Must never raise on account of a file, and never leave half a
line: a process that is killed loses at most the record that it was writing.  Any thread may use it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ofl.contract.observation_v1 import Closed, Facts, Observation, Record, write_line

LOG = logging.getLogger(__name__)


def file_name(start_id: str, rank: int) -> str:
    """Of one rank and start."""
    return f"observations-{start_id}-rank{rank}.jsonl"


class Writer:
    """Writes one rank's records of one start, `Facts` first.  Raises OSError where the file cannot be made.

    path: of the file.  dropped: records that are not in it.  log: of whose hooks write, so that the engine's has it.
    """

    def __init__(
        self,
        folder: Path,
        facts: Facts,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        log: logging.Logger = LOG,
    ) -> None:
        self.path = folder / file_name(facts.start_id, facts.rank)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o600)
        self._clock_ns, self._log = clock_ns, log
        self._lock = threading.Lock()
        self._index = self._size = self.dropped = 0
        self._broken = self._closed = False
        self.write(facts)

    def write(self, record: Record) -> None:
        """One more record; counted as dropped where it cannot be written."""
        with self._lock:
            if not self._closed:
                self._write(record)

    def defect(self, error: Exception) -> None:
        """A hook failed: what it saw is not here, and the file says so.  Told once in the log."""
        with self._lock:
            self._drop(error)

    def close(self) -> None:
        """The last line.  Safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._write(Closed(records=self._index, dropped=self.dropped))
            self._closed = True
            os.close(self._file)

    def _write(self, record: Record) -> None:
        try:
            line = write_line(Observation(self._index, self._clock_ns(), record))
            self._append(line)
        except (OSError, ValueError) as error:
            self._drop(error)
        else:
            self._index += 1
            self._size += len(line)

    def _append(self, line: bytes) -> None:
        """The whole line or nothing of it.  Raises OSError."""
        if self._broken:
            raise OSError("the file ends in half a line")
        try:
            if os.write(self._file, line) != len(line):
                raise OSError("the line was written in part")
        except OSError:
            self._cut()
            raise

    def _cut(self) -> None:
        try:
            os.ftruncate(self._file, self._size)
        except OSError:
            self._broken = True  # No line may follow half a line.
            raise

    def _drop(self, error: Exception) -> None:
        if not self.dropped:
            log = self._log
            log.warning("an observation is lost, and the next ones may be: %s", error)
        self.dropped += 1
