"""Processes that have vLLM imported already: forked from one that has imported it and done nothing else.

What is imported is what every process of `engine_process` imports before it makes an engine, so before vLLM loads its
plugins: seconds of a core for each of them.  The fork server is the standard library's.
"""

import multiprocessing
import os
import subprocess
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["vllm.engine.arg_utils", "vllm.v1.engine.llm_engine"])


class PreloadedProcess:
    """As much of `subprocess.Popen` as a driver of engines needs, for a function that reads stdin and writes stdout."""

    def __init__(self, target: Callable[[], None], environment: Mapping[str, str], log: Path) -> None:
        """log: stderr goes to its end."""
        orders_read, orders_write = os.pipe()
        events_read, events_write = os.pipe()
        ends = (orders_read, events_write, os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))
        given = [Connection(end) for end in ends]
        self._process = SERVER.Process(target=_become, args=(target, dict(environment), given), daemon=False)
        self._process.start()
        for end in given:
            end.close()
        self.stdin: IO[bytes] | None = os.fdopen(orders_write, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(events_read, "rb")

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, negative for a signal, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout_s: float) -> int:
        """The exit status.  Raises subprocess.TimeoutExpired."""
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("an engine", timeout_s)
        return self._process.exitcode

    def kill(self) -> None:
        """By SIGKILL."""
        self._process.kill()


def _become(target: Callable[[], None], environment: Mapping[str, str], given: list[Connection]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, end in enumerate(given):
        os.dup2(end.fileno(), descriptor)
        end.close()
    target()
