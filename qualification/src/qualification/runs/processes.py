"""Processes of a run: each in a group of its own, ended with the runner, its words in a log.

Owns starting and ending.  Must never leave one behind: who starts one ends it on the way out, the supervisor ends the
groups of a runner that was killed, and the system ends the leader itself.
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from qualification.runs.interruption import ENDING, held
from qualification.runs.supervisor import Supervisor

END_S = 10.0
"""From SIGTERM to SIGKILL."""
SAID_CHARACTERS = 300
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl
"""Looked up here, so that nothing is loaded between fork and exec."""


class ProcessError(Exception):
    """A process could not be started, or did not do what it must; one sentence."""


class Process:
    """A running command; a context manager that ends it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        supervisor: Supervisor,
        *,
        pipes: bool = False,
    ) -> None:
        """pipes: to its stdin and stdout; else stdout goes to the log as well.  Raises ProcessError."""
        self.name, self.log = name, log
        self._supervisor = supervisor
        with log.open("ab") as words, held():
            try:
                self.child = subprocess.Popen(
                    command,
                    env=dict(environment),
                    stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if pipes else words,
                    stderr=words,
                    start_new_session=True,
                    preexec_fn=_end_with_parent(),  # noqa: PLW1509  # loads nothing, takes no lock
                )
            except OSError as error:
                raise ProcessError(f"{name}: {command[0]!r} cannot be started: {error.strerror}.") from None
            self._supervisor.group(self.child.pid)

    @property
    def status(self) -> int | None:
        """Exit status, None while it runs."""
        return self.child.poll()

    def wait(self, seconds: float) -> int | None:
        """Its exit status once it has ended, None where it has not after so long."""
        with suppress(subprocess.TimeoutExpired):
            return self.child.wait(seconds)
        return None

    def end(self) -> None:
        """SIGTERM, and SIGKILL to what is left of the group after a bounded wait.  Safe to call again."""
        if self.child.poll() is None:
            self._signal(signal.SIGTERM)
            self.wait(END_S)
        # The leader may be reaped, but the group still has its number while anybody is in it.
        self._signal(signal.SIGKILL)
        self.child.wait()
        self._supervisor.gone(self.child.pid)
        for stream in (self.child.stdin, self.child.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return "".join(letter for letter in said if letter.isprintable())[:SAID_CHARACTERS]

    def __enter__(self) -> "Process":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, number)


def _end_with_parent() -> Callable[[], None]:
    """A preexec_fn: the child gets SIGKILL when the thread that started it ends."""
    parent = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before it could be watched
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare
