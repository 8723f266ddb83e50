"""A worker process as a test sees it: started, killed, frozen, thawed, started again on the same port; and the oracle
worker, which can be made to misbehave.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("oracle_worker.py")
START_S = 60.0
ORDER_S = 20.0
IDENTITY, MARKOV_IDENTITY = "1d" * 32, "3a" * 32


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class WorkerProcess:
    """One worker process at a time, always at the same endpoint; what it runs is the subclass's `start`."""

    def __init__(self) -> None:
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def _await(self, ready: Path, log: Path) -> None:
        """Return once the ready file is there; the log says why, where the process ends before."""
        assert self._process is not None
        ended = os.pidfd_open(self._process.pid)
        try:
            for _ in range(int(START_S / 0.02)):
                if ready.exists():
                    return
                assert not select.select([ended], [], [], 0.02)[0], log.read_text()
        finally:
            os.close(ended)
        raise AssertionError("the worker does not come up")

    def kill(self) -> None:
        """SIGKILL; also where it is frozen or not there."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP: its connections stay up and say nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class OracleWorker(WorkerProcess):
    """The worker that knows the texts."""

    def __init__(self, folder: Path, shape: dict[str, int], texts: list[list[int]]) -> None:
        """shape: facts for HELLO; texts: prompt and continuation of every request that will come."""
        super().__init__()
        self._folder = folder
        self._log = folder / "blocks.jsonl"
        self._config: dict[str, Any] = {
            "endpoint": self.endpoint,
            "log": str(self._log),
            "shape": shape,
            "texts": texts,
            "identity": IDENTITY,
            "markov_identity": MARKOV_IDENTITY,
        }

    def start(self, **changes: Any) -> None:
        """Start it and wait until it listens.  changes: to its configuration, for this start only."""
        assert self._process is None
        ready = self._folder / "worker-ready.json"
        ready.unlink(missing_ok=True)
        config = self._folder / "worker.json"
        config.write_text(json.dumps(self._config | changes | {"ready_file": str(ready)}))
        with (self._folder / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._await(ready, self._folder / "worker.log")

    def order(self, fault: str) -> dict[str, int]:
        """Let it misbehave from the next reply on (`wire_faults`); how often what was done since the last order."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"fault": fault}).encode() + b"\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], ORDER_S)
        line = self._process.stdout.readline() if readable else b""
        assert line, f"the worker does not follow: {(self._folder / 'worker.log').read_text()}"
        done: dict[str, int] = json.loads(line)["done"]
        return done

    def blocks(self) -> list[dict[str, Any]]:
        """Every block drafted since the last call, in order."""
        if not self._log.exists():
            return []
        lines = self._log.read_text(encoding="utf-8").splitlines()
        self._log.write_text("")
        return [json.loads(line) for line in lines]

    def sessions_opened(self) -> int:
        """Sessions opened by any engine since the first start."""
        return (self._folder / "worker.log").read_text(encoding="utf-8").count("session opened")

    def __enter__(self) -> "OracleWorker":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
