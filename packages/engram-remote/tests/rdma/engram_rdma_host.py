"""The table server of these tests: a process that is frozen, killed and started again where it was."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from engram_client_tools import MS, ClientChanges, until
from engram_process import ServeProcess
from engram_remote.client import ClientOptions

RANK = 1
SCALE = float(os.environ.get("OFL_TEST_TIME_SCALE", "1"))


def span_ns(milliseconds: float) -> int:
    """Nanoseconds of this machine, of a span on one that runs as fast as it should."""
    return int(milliseconds * SCALE * MS)


class TableHost:
    """endpoints: by wire, kept over restarts."""

    def __init__(self, tables: Path, folder: Path, address: str) -> None:
        self._tables, self._folder = tables, folder
        self.endpoints = {wire: f"{wire}://{address}:0" for wire in ("rdma", "tcp")}
        self.starts = 0
        self.process: ServeProcess | None = None

    def start(self) -> None:
        """Return when it serves."""
        self.starts += 1
        words = [word for endpoint in self.endpoints.values() for word in ("--listen", endpoint)]
        words += ["--gather-threads", "1", "--batch-rows", "8192", "--reply-buffers", "2"]
        self.process = ServeProcess(self._tables, self._folder / f"ready-{self.starts}.json", words)
        found = self.process.ready()["endpoints"]
        self.endpoints = {endpoint.partition(":")[0]: endpoint for endpoint in found}

    def freeze(self) -> None:
        """Return when none of it runs any more."""
        self._signal(signal.SIGSTOP)
        assert self.process is not None
        stat = Path(f"/proc/{self.process.process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the stop")

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        self._signal(signal.SIGKILL)
        assert self.process is not None
        self.process.end()
        self.process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None, "it does not run"
        self.process.process.send_signal(number)

    def options(
        self, wire: str, tables: Path | None = None, **changes: Unpack[ClientChanges]
    ) -> ClientOptions:
        """A client that waits for a machine as slow as this one, unless told otherwise.  tables: None: the server's."""
        patient = ClientOptions(
            tables or self._tables,
            rank=RANK,
            endpoint=self.endpoints[wire],
            timeout_ns=span_ns(10_000),
            connect_timeout_ns=span_ns(2_000),
            retry_ns=100 * MS,
            retry_max_ns=500 * MS,
            heartbeat_ns=span_ns(50),
            loss_ns=span_ns(10_000),
            batch_rows_max=8_192,
            read_threads=2,
        )
        return replace(patient, **changes)


@contextmanager
def serving_host(tables: Path, folder: Path, address: str) -> Iterator[TableHost]:
    """It is killed at the end."""
    host = TableHost(tables, folder, address)
    try:
        host.start()
        yield host
    finally:
        if host.process is not None:
            host.kill()
