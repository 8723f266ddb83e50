"""What the arm process itself observes: cases, and how requests ended.  One file, beside those of the hooks.

Standard library and `ofl` only.  Must never hold a token: a text goes in as its tag.
"""

import time
from collections.abc import Callable
from pathlib import Path

from ofl.contract import observation_v1 as seen

HARNESS_FILE = "harness.jsonl"


class ObservationFile:
    """Writes observations in order, `Facts` first and `Closed` last.  A line leaves at once."""

    def __init__(
        self, path: Path, facts: seen.Facts, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._file = path.open("xb", buffering=0)
        self._clock_ns = clock_ns
        self._index = 0
        self.write(facts)

    def write(self, record: seen.Record) -> None:
        """One more."""
        line = memoryview(seen.write_line(seen.Observation(self._index, self._clock_ns(), record)))
        while line:
            line = line[self._file.write(line) :]
        self._index += 1

    def close(self) -> None:
        """The last line, and the end."""
        self.write(seen.Closed(records=self._index, dropped=0))
        self._file.close()

    def abandon(self) -> None:
        """The end without a last line: what is here is no evidence."""
        self._file.close()
