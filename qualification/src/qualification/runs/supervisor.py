"""The runner's side of the supervisor: starts the watcher, tells it what exists, hears why it stopped the run.

Owns the watcher process.  What it guards against: a window that is overrun, an engine that started again under our
evidence, a guard command that says no (production would be touched), and a runner that is killed or hangs.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from qualification.runs import watcher
from qualification.runs.window import Window

GUARD_EVERY_S = 30.0
GUARD_LIMIT_S = 60.0
END_S = 30.0


class StoppedError(Exception):
    """The supervisor stopped the run; the text says why."""


class Supervisor:
    """A context manager: from the window's opening to the end of the side."""

    def __init__(
        self, window: Window, guard: Sequence[str] = (), guard_every_s: float = GUARD_EVERY_S
    ) -> None:
        settings = {
            "runner": os.getpid(),
            "deadline_s": window.hard_at_s,
            "guard": list(guard),
            "guard_every_s": guard_every_s,
            "guard_limit_s": GUARD_LIMIT_S,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", watcher.__file__, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._reason = ""

    @property
    def pid(self) -> int:
        """The watcher's."""
        return self._process.pid

    def group(self, group: int) -> None:
        """This process group is the run's."""
        self._tell(f"group {group}")

    def gone(self, group: int) -> None:
        """It has ended, and its number may be anybody's."""
        self._tell(f"gone {group}")

    def start(self, start_id: str, folder: Path) -> None:
        """Files of observations in this folder must be of this start."""
        self._tell(f"start {start_id} {folder}")

    def over(self, folder: Path) -> None:
        """Whatever start there was in this folder is over."""
        self._tell(f"over {folder}")

    def check(self) -> None:
        """Raises StoppedError where the watcher stopped the run, or is gone itself."""
        stdout = self._process.stdout
        assert stdout is not None
        if not self._reason and select.select([stdout], [], [], 0)[0]:
            said = os.read(stdout.fileno(), 1 << 12).decode(errors="replace").strip()
            self._reason = said or "the supervisor is gone"
        if self._reason:
            raise StoppedError(self._reason)

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the watcher, within a bound."""
        self._tell("done")
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `check` says why it is gone
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
