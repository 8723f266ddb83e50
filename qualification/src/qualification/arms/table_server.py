"""The table server of an arm: `engram-remote serve` in a process of its own, started and stopped by events.

Owns that process.  It stands in the arm's process group, so that whoever ends the arm ends it too; and the system ends
it with the arm.
"""

import ctypes
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from qualification.arms.serve import ArmFailedError

READY_S = 60.0
END_S = 20.0
COMMAND = (sys.executable, "-c", "from engram_remote.cli import main; main()")
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl
"""Looked up here, so that nothing is loaded between fork and exec."""
_READY = re.compile(r"\bidentity ([0-9a-f]{64}) on ")


class TableServer:
    """At most one process at a time, all at the same endpoint.  identity: of the tables that it serves now."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint, self.identity = endpoint, ""
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self, folder: Path) -> None:
        """Serve a folder of shards; returns once it listens.  Raises ArmFailedError."""
        assert self._process is None, "one server at a time"
        command = [*COMMAND, "serve", str(folder), "--listen", self.endpoint]
        # Little memory and no spinning: a rehearsal shares its cores.
        command += ["--batch-rows", "4096", "--gather-threads", "1", "--load-threads", "1", "--spin-us", "0"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=_end_with_parent,  # noqa: PLW1509  # loads nothing, takes no lock
        )
        said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=_forward, args=(self._process, said), daemon=True)
        self._reader.start()
        self.identity = _wait_ready(said)

    def kill(self) -> None:
        """SIGKILL; returns once it is gone."""
        process = self._there()
        process.kill()
        self._gone()

    def hold(self) -> None:
        """SIGSTOP; returns once it stands still, and so answers nothing until `release`."""
        process = self._there()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def release(self) -> None:
        """SIGCONT; returns once it goes on."""
        process = self._there()
        process.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WCONTINUED)

    def close(self) -> None:
        """End it, where it is there."""
        if self._process is not None:
            self._process.terminate()
            self._gone()

    def _there(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "a server runs"
        return self._process

    def _gone(self) -> None:
        process, reader = self._there(), self._reader
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert reader is not None, "started with the process"
        reader.join()
        assert process.stderr is not None, "it is a pipe"
        process.stderr.close()
        self._process, self.identity = None, ""


def _end_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _forward(process: "subprocess.Popen[str]", said: "queue.SimpleQueue[str]") -> None:
    """Its words go to the arm's log, and to whoever waits; an empty one is the end."""
    assert process.stderr is not None, "it is a pipe"
    for line in process.stderr:
        sys.stderr.write(line)
        said.put(line)
    said.put("")


def _wait_ready(said: "queue.SimpleQueue[str]") -> str:
    last = "it said nothing"
    while True:
        try:
            line = said.get(timeout=READY_S)
        except queue.Empty:
            raise ArmFailedError(f"the table server was not ready within {READY_S:g} s: {last}") from None
        if not line:
            raise ArmFailedError(f"the table server ended before it was ready: {last}")
        if found := _READY.search(line):
            return found[1]
        last = line.strip() or last
