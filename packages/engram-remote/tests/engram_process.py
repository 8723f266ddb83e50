"""`engram-remote serve` as a process of its own, watched through its log."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 30 * float(os.environ.get("OFL_TEST_TIME_SCALE", "1"))
_COMMAND = (sys.executable, "-c", "from engram_remote.cli import main; main()")


def engram(*words: str | Path, timeout: float = SECONDS, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [*_COMMAND, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=os.environ | env, check=False
    )


class ServeProcess:
    """A server that loads or serves.  lines: of its log so far."""

    def __init__(self, folder: Path, ready: Path, words: Sequence[str]) -> None:
        self.ready_file = ready
        command = [*_COMMAND, "serve", str(folder), "--ready-file", str(ready), *words]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.lines.append(line)
                self._said.notify_all()
        with self._said:
            self.lines.append("")
            self._said.notify_all()

    def wait_for(self, words: str) -> str:
        """The first line of the log with these words.  Fails where the process ends before."""
        with self._said:
            found = self._said.wait_for(
                lambda: [line for line in self.lines if words in line or not line], SECONDS
            )
        assert found, f"no line with {words!r} within {SECONDS} s: {self.lines}"
        assert words in found[0], f"ended without {words!r}: {''.join(self.lines)}"
        return found[0]

    def ready(self) -> dict[str, Any]:
        """What the ready file says, once everything listens."""
        self.wait_for("INFO identity ")
        record: dict[str, Any] = json.loads(self.ready_file.read_text())
        return record

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it; its exit status."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """Its exit status, once it has ended."""
        status = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


@contextmanager
def serving(folder: Path, tmp_path: Path, *words: str) -> Iterator[ServeProcess]:
    """A server process, killed at the end if it still lives."""
    one = ServeProcess(folder, tmp_path / "ready.json", words)
    try:
        yield one
    finally:
        one.process.kill()
        one.end()
