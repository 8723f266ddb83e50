"""An installed program of ours, run as its users run it: what every package's smoke.py shares.

Standard library only; no file of this repository is used by what is run.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND_S = 120.0
NOT_INHERITED = ("PYTHONPATH", "OFL_LIBRARY", "ENGRAM_LIBRARY")
"""What could make a library be found that was not installed."""


class SmokeError(Exception):
    """What did not hold."""


class Installed:
    """A program in the folder `programs`, run in `folder`."""

    def __init__(self, programs: Path, name: str, folder: Path | None = None) -> None:
        self._name, self._program, self._folder = name, str(programs.resolve() / name), folder
        self._env = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}

    def run(self, *words: str) -> str:
        """A command that must succeed; what it printed.  Raises SmokeError."""
        ended = subprocess.run(
            [self._program, *words],
            cwd=self._folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if ended.returncode != 0:
            raise SmokeError(f"{self._name} {words[0]} ended with {ended.returncode}: {ended.stderr}")
        return ended.stdout

    @contextmanager
    def serving(self, *words: str) -> Iterator["subprocess.Popen[str]"]:
        """A server, told to end after the body, which must succeed.  Raises SmokeError."""
        command = [self._program, *words]
        with subprocess.Popen(
            command, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as server:
            try:
                yield server
                server.send_signal(signal.SIGTERM)
                server.communicate(timeout=COMMAND_S)
            finally:
                server.kill()
        if server.returncode != 0:
            raise SmokeError(f"{self._name} {words[0]} ended with {server.returncode} after SIGTERM")
