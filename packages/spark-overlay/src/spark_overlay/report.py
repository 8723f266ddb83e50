"""Writes the figures out: the stats file, replaced as a whole, and one log line.  Off the round's path.

Owns one daemon thread and the file.  A round only hands a snapshot over; a file that cannot be written
is reported once until it can be again, and costs nothing else.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ofl.files import publish

log = logging.getLogger(__name__)

CLOSE_JOIN_S = 2.0
REWRITE_S = 10.0
"""The file of an engine that posts nothing is written again this often: an older one is of an engine that is gone."""
Snapshot = Mapping[str, Any]


def write_json(path: Path, snapshot: Snapshot) -> None:
    """Replace path by the snapshot: readers see the old file or the new one whole.  Raises OSError."""
    text = json.dumps(snapshot, indent=1, allow_nan=False) + "\n"
    publish(path, text.encode())


def log_line(snapshot: Snapshot) -> str:
    """The figures in one line: rounds, reasons of failures, acceptance, latencies that were measured."""
    counters, acceptance = snapshot["counters"], snapshot["acceptance"]
    fallbacks = [
        f"{name.removeprefix('fallback_')} {count}"
        for name, count in counters.items()
        if name.startswith("fallback_") and count
    ]
    latency = ", ".join(
        f"{name} {values['p50']:.0f}/{values['p99']:.0f}"
        for name, values in snapshot["latency"].items()
        if values["count"]
    )
    return (
        f"remote DSpark: {counters['rounds_ok']} rounds ok, {counters['rounds_failed']} failed"
        f"{' (' + ', '.join(fallbacks) + ')' if fallbacks else ''}, "
        f"{counters['rounds_some_failed']} in part; "
        f"{acceptance['accepted_per_round']:.2f} accepted a round"
        f"{f'; p50/p99 {latency}' if latency else ''}"
    )


class Reporter:
    """Takes snapshots from the engine's thread and writes the newest one.

    path: the stats file, or None for log lines only.  refresh: makes a snapshot current in what it can, called by this
    thread; an idle engine posts nothing, and its file must still tell whether the worker is there.
    """

    def __init__(self, path: Path | None, refresh: Callable[[Snapshot], Snapshot]) -> None:
        self._path, self._refresh = path, refresh
        self._posted = threading.Condition()
        self._newest: Snapshot | None = None
        self._is_new = self._say = self._closed = self._is_stale = False
        self._complained = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin writing, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spark-overlay-report", daemon=True)
            self._thread.start()

    def post(self, snapshot: Snapshot, *, say: bool = True) -> None:
        """Hand over the newest figures; one that was not written yet is dropped for it.  say: with a log line."""
        with self._posted:
            self._newest = snapshot
            self._is_new = True
            self._say |= say
            self._posted.notify()

    def refresh(self) -> None:
        """Write the newest figures again now, with what is current in them: something else than rounds changed."""
        with self._posted:
            self._is_stale = True
            self._posted.notify()

    def close(self) -> None:
        """Write what was posted last and end the thread, within CLOSE_JOIN_S."""
        with self._posted:
            self._closed = True
            self._posted.notify()
        if self._thread is None:
            self._write()
        else:
            self._thread.join(CLOSE_JOIN_S)

    def _run(self) -> None:
        while True:
            with self._posted:
                self._posted.wait_for(lambda: self._is_new or self._is_stale or self._closed, REWRITE_S)
                if self._closed and not self._is_new:
                    return
            self._write()

    def _write(self) -> None:
        with self._posted:
            snapshot, say = self._newest, self._say
            is_current = self._is_new and not self._is_stale
            self._is_new = self._say = self._is_stale = False
        if snapshot is None:
            return
        try:
            if say:
                log.info("%s", log_line(snapshot))
            if self._path is None:
                return
            write_json(self._path, snapshot if is_current else self._refresh(snapshot))
        except OSError as error:
            self._complain(f"the stats file {self._path} cannot be written: {error}")
        except Exception as error:
            # Not narrower: this thread must live as long as the engine, or the file tells of its first minutes only.
            self._complain(
                f"a defect of the overlay kept the stats file back: {type(error).__name__}: {error}"
            )
        else:
            self._complained = False

    def _complain(self, sentence: str) -> None:
        if not self._complained:
            self._complained = True
            log.warning("%s", sentence)
