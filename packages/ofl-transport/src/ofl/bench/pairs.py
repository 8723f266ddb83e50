"""Runs a tool that somebody else wrote: its server, then its client, then the end of both.

Owns processes and ports.  Leaves none behind: what it starts ends with this process at the latest.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ofl.errors import TransportError

LISTEN_S = 30.0
CLIENT_S = 180.0
END_S = 2.0
POLL_S = 0.01
"""How often it is looked whether a tool listens: some take one connection, which must not be the question."""
_LISTENING = "0A"


@dataclass(frozen=True)
class Tool:
    """A command and the Debian package that has it."""

    command: str
    package: str

    @property
    def missing(self) -> str:
        """A sentence where it is not installed, else empty."""
        if shutil.which(self.command):
            return ""
        return f"{self.command} is not installed (Debian package {self.package})"


@dataclass(frozen=True)
class Pair:
    """Arguments of both ends; "{port}" stands for a port that is free."""

    tool: Tool
    server: Sequence[str]
    client: Sequence[str]
    env: Mapping[str, str]

    def run(self) -> str:
        """What the client prints.  Raises TransportError naming the tool."""
        port = _free_port()
        server, client = (
            [self.tool.command, *(word.replace("{port}", str(port)) for word in words)]
            for words in (self.server, self.client)
        )
        env = os.environ | self.env
        with _process(server, env) as process:
            _wait_listening(process, port, self.tool)
            try:
                done = subprocess.run(
                    client, env=env, capture_output=True, text=True, timeout=CLIENT_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise TransportError(f"{self.tool.command} did not end within {CLIENT_S:g} s") from None
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise TransportError(f"{self.tool.command} ended with status {done.returncode}: {said}")
        return done.stdout


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def _process(command: Sequence[str], env: Mapping[str, str]) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_end_with_parent(),  # noqa: PLW1509  # loads nothing, takes no lock
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent() -> Callable[[], None]:
    """What a child calls so that the kernel ends it when this thread does."""
    prctl = ctypes.CDLL(None).prctl
    set_death_signal = 1
    return lambda: prctl(set_death_signal, int(signal.SIGKILL), 0, 0, 0)


def _wait_listening(process: "subprocess.Popen[bytes]", port: int, tool: Tool) -> None:
    deadline = time.monotonic() + LISTEN_S
    while not _listens(port):
        if process.poll() is not None:
            raise TransportError(
                f"the server of {tool.command} ended with status {process.returncode} before it listened"
            )
        if time.monotonic() >= deadline:
            raise TransportError(f"the server of {tool.command} did not listen within {LISTEN_S:g} s")
        time.sleep(POLL_S)


def _listens(port: int) -> bool:
    """Whether a TCP socket of this host listens on the port."""
    for name in ("tcp", "tcp6"):
        try:
            rows = Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False
