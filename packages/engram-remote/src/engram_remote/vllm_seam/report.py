"""What the seam says in the engine's log: the bytes saved, the way rows take, and the counters while there is
traffic.
"""

import logging
import threading
from typing import Protocol

logger = logging.getLogger("engram_remote.vllm_seam")
GIB = 1 << 30


class Counting(Protocol):
    """Whatever has totals by name, and a line about them."""

    def counters(self) -> dict[str, int]: ...

    def statistics_line(self) -> str: ...


class Statistics:
    """A line every `seconds`, where any counter rose since the last one; and one at the end."""

    def __init__(self, source: Counting, seconds: float, who: str) -> None:
        self._source, self._seconds, self._who = source, seconds, who
        self._last: dict[str, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engram-remote-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, with a last line where something is left to say.  Again: nothing."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        self.say()

    def say(self) -> None:
        """One line, unless nothing happened since the last."""
        found = self._source.counters()
        if any(value != self._last.get(name, 0) for name, value in found.items()):
            logger.info("engram-remote: %s: %s", self._who, self._source.statistics_line())
        self._last = found

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self.say()


def say_saved(layer: int, rows: int, row_bytes: int, kept: int, where: str, way: str) -> None:
    """kept: pinned bytes that serve this layer instead.  where: of the table in stock.  way: how rows come."""
    saved = rows * row_bytes
    logger.info(
        "engram-remote: layer %d: %d rows x %d bytes are not allocated, %d bytes (%.2f GiB) of %s saved; "
        "%d bytes (%.4f GiB) of pinned staging instead; rows come from %s",
        layer, rows, row_bytes, saved, saved / GIB, where, kept, kept / GIB, way,
    )  # fmt: skip
