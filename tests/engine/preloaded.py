"""Processes that have vLLM imported already: forked from one that has imported it and done nothing else.

What is imported is what every process of `engine_process` imports before it makes an engine, so before vLLM loads its
plugins: seconds of a core for each of them, and for each rank of an engine of several.  The fork server is the standard
library's.
"""

import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
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


class RankProcess(ForkServerProcess):
    """A rank, from the same server as its engine: with the engine's variables and output, as if it were spawned."""

    def start(self) -> None:
        """See `multiprocessing.Process`."""
        self._variables = dict(os.environ)
        self._output = [Connection(os.dup(end)) for end in (1, 2)]
        super().start()
        for end in self._output:
            end.close()

    def run(self) -> None:
        """See `multiprocessing.Process`."""
        _take(self._variables, {1: self._output[0], 2: self._output[1]})
        super().run()


class RankContext(ForkServerContext):
    """What vLLM makes its ranks with."""

    Process = RankProcess


def _become(target: Callable[[], None], environment: Mapping[str, str], given: list[Connection]) -> None:
    _take(environment, dict(enumerate(given)))
    _fork_ranks_too()
    target()


def _take(environment: Mapping[str, str], ends: Mapping[int, Connection]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, end in ends.items():
        os.dup2(end.fileno(), descriptor)
        end.close()


def _fork_ranks_too() -> None:
    """From the server that forked us.  It is there as long as we are; the standard library would start another."""
    server = multiprocessing.forkserver._forkserver  # type: ignore[attr-defined]
    assert server._forkserver_address
    server.ensure_running = lambda: None
    for name in (
        "vllm.utils.system_utils",
        "vllm.v1.executor.multiproc_executor",
    ):  # the second has the first's
        if name in sys.modules:
            sys.modules[name].get_mp_context = RankContext  # type: ignore[attr-defined]
