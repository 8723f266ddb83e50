"""`engram-remote serve` as a process of its own, to be killed, frozen and started again on the same port."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 60
COMMAND = (sys.executable, "-c", "from engram_remote.cli import main; main()", "serve")
LISTENING = re.compile(r"identity [0-9a-f]{64} on (\S+?)[, ]")


class ServerProcess:
    """A server of a folder of shards on this host.  endpoint: where it listens; port 0: known once it has started."""

    def __init__(self, folder: Path, endpoint: str = "tcp://127.0.0.1:0") -> None:
        self.folder = folder
        self.endpoint = endpoint
        self.process: subprocess.Popen[str] | None = None
        self.log: list[str] = []

    def start(self) -> None:
        """Returns when it listens; again after a kill: on the same port."""
        command = [*COMMAND, str(self.folder), "--listen", self.endpoint, "--gather-threads", "1"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        found: list[str] = []
        listening = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self.process, found, listening), daemon=True)
        self._reader.start()
        assert listening.wait(SECONDS), self.log
        assert found, f"the server did not start: {self.log}"
        self.endpoint = found[0]

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait(SECONDS)
        self._reader.join(SECONDS)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Whatever state it is in; its exit status is not looked at."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    @property
    def _process(self) -> "subprocess.Popen[str]":
        assert self.process is not None
        return self.process

    def _signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def _read(self, process: "subprocess.Popen[str]", found: list[str], listening: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if not found and (match := LISTENING.search(line)):
                    found.append(match.group(1))
                    listening.set()
        listening.set()  # it ended


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for what nothing announces; fails with its name."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}"
        time.sleep(0.005)
