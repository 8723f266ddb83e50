"""How a destination's shell is reached: the system's ssh, another remote shell command, or the shell of this host.

Owns the processes that it starts, each in a group of its own; must never wait for one beyond its time, nor let a
destination's text become an option of ssh.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from spark_overlay.delivery.errors import DeliveryError
from spark_overlay.delivery.far_end import command

SSH = "ssh -oBatchMode=yes -oConnectTimeout=10 -oControlMaster=no"
"""Without a terminal, nobody could answer a question for a password; a connection left open for later calls could keep
our pipes open with it."""
HOST = re.compile(r"[A-Za-z0-9_.@%\[\]:-]+")
SAID_MAX = 1 << 16
"""Bytes of what a process says that are kept."""
NO_REASONS = ("due to previous errors", "exiting now")
"""Ends of tar's last line, where the reason stands in one before it."""
HOST_WORD = "{host}"


@dataclass(frozen=True)
class Destination:
    """host: "" for this one.  folder: a path there."""

    host: str
    folder: str

    def __str__(self) -> str:
        return f"{self.host}:{self.folder}" if self.host else self.folder


@dataclass(frozen=True)
class Answer:
    """What a far end said.  status: its exit status; None: not in time.  failed: why it could not be asked."""

    status: int | None
    stdout: str = ""
    stderr: str = ""
    failed: str = ""

    @property
    def last_words(self) -> str:
        """The last line that it complained with and that says why, or "nothing"."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        reasons = [line for line in lines if not line.endswith(NO_REASONS)]
        return (reasons or lines or ["it said nothing"])[-1]


def parse_destination(text: str) -> Destination:
    """HOST:DIR, or DIR on this host.  Raises DeliveryError."""
    front, colon, folder = text.partition(":")
    if text.startswith("["):
        front, colon, folder = text.partition("]:")
        front, colon = front + "]" * bool(colon), colon[1:]
    if not colon or "/" in front:
        host, folder = "", text
    else:
        host = front
        if not HOST.fullmatch(host) or host.startswith("-"):
            raise DeliveryError(f"--to: {text!r}: {host!r} is no name of a host")
    if not folder or "\n" in folder or "\0" in folder:
        raise DeliveryError(f"--to: {text!r}: HOST:DIR is needed, or DIR on this host")
    if folder.startswith("~"):
        raise DeliveryError(
            f"--to: {text!r}: no shell expands ~ there; a DIR without a slash is in the home folder"
        )
    return Destination(host, folder)


def parse_rsh(text: str) -> list[str]:
    """Words of a remote shell command.  Raises DeliveryError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise DeliveryError(f"--rsh: {text!r} cannot be split into words: {error}") from None
    if not words:
        raise DeliveryError("--rsh: a command is needed, such as 'ssh -p 2222'")
    return words


class RemoteShell:
    """Runs scripts on hosts.  Any number of threads may."""

    def __init__(self, rsh: Sequence[str], timeout_s: float) -> None:
        """rsh: words before the host's name, or with `{host}` where it belongs; the last argument is the command."""
        self._rsh, self.timeout_s = list(rsh), timeout_s
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def words(self, destination: Destination, script: str, *arguments: str) -> list[str]:
        """The command line that runs a script on a destination's folder."""
        line = command(script, destination.folder, *arguments)
        if not destination.host:
            return ["sh", "-c", line]
        host = destination.host.replace("[", "").replace("]", "")
        if any(HOST_WORD in word for word in self._rsh):
            return [*(word.replace(HOST_WORD, host) for word in self._rsh), line]
        return [*self._rsh, host, line]

    def run(
        self, destination: Destination, script: str, *arguments: str, stdin: IO[bytes] | None = None
    ) -> Answer:
        """Run it to its end or to the end of its time; never raises on account of the far end."""
        words = self.words(destination, script, *arguments)
        with self._lock:
            if self._ended:
                return Answer(None, failed="the staging was stopped")
            try:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL if stdin is None else stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                return Answer(None, failed=f"{words[0]!r} cannot be started: {error.strerror}")
            self._running.add(process)
        try:
            stdout, stderr = process.communicate(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            return Answer(None, failed=f"no answer within {self.timeout_s:g} s")
        finally:
            with self._lock:
                self._running.discard(process)
            _end(process)
        return Answer(process.returncode, _text(stdout), _text(stderr))

    def end(self) -> None:
        """End what runs, and start nothing any more."""
        with self._lock:
            self._ended = True
            running = list(self._running)
        for process in running:
            _signal(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        _signal(process)
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _signal(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _text(said: bytes) -> str:
    text = said[-SAID_MAX:].decode(errors="replace").replace("\r", "")
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
