"""What tests over real wires share: the mock drafter's shape, an engine of that shape, one request of it, and
`x86-worker mock` as a process of its own.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from ofl.contract.dspark_v1 import RowDtype
from spark_overlay.interface import EngineFacts
from spark_overlay.round.messages import RoundRequest, RoundResult
from spark_overlay.rounds import RemoteDrafter
from spark_overlay.settings import Settings
from x86_worker.mock import MockShape, mock_block, row_digest

SHAPE = MockShape(
    vocabulary=5000,
    row_elements=256,
    projected_elements=64,
    tap_count=2,
    block_length=5,
    window=16,
    max_positions=2000,
)
FACTS = EngineFacts(
    vocabulary=5000,
    row_elements=256,
    row_dtype=RowDtype.FLOAT32,
    tap_count=2,
    window=16,
    max_positions=2000,
    block_length=5,
    max_slots=4,
)
MOCK_OPTIONS = (
    "--vocabulary=5000",
    "--hidden-size=128",
    "--taps=2",
    "--block-length=5",
    "--window=16",
    "--max-positions=2000",
    "--max-frame-mib=1",
    "--unsafe-any-policy",
)
"""FACTS for the command line, whose identities follow from them and are in the ready file."""
PATIENCE_S = 30.0
"""For what comes at once unless something is broken; the machine may be busy."""


@dataclass
class OneRequest:
    """A request that grows; the drafts it must get are known.  identity: of the worker."""

    drafter: RemoteDrafter
    identity: bytes = field(default_factory=lambda: SHAPE.facts().identity)
    rows: list[bytes] = field(default_factory=list)

    def step(self, n_rows: int) -> RoundResult:
        """The next rows, with a wish for drafts."""
        first = len(self.rows)
        self.rows += [os.urandom(FACTS.row_bytes) for _ in range(n_rows)]
        request = RoundRequest(2, "r", first, n_rows, 0, 7, 5)
        return self.drafter.round([request], b"".join(self.rows[first:]))

    def expected(self) -> list[int]:
        """The drafts of the mock for the rows so far."""
        end = len(self.rows)
        start = max(0, end - FACTS.window)
        digests = [row_digest(position, self.rows[position]) for position in range(start, end)]
        return list(mock_block(self.identity, 7, end, digests, 5000, 5).drafts)

    def drafts_exactly(self, n_rows: int) -> None:
        """Assert it of the next step."""
        result = self.step(n_rows)
        assert result.reason == "", result.detail
        assert result.drafts.tolist() == [self.expected()]


def make_drafter(
    endpoint: str, *, identity: str = "", markov_identity: str = "", **changes: str
) -> RemoteDrafter:
    """An engine's drafter for the mock at the endpoint.  changes: settings by the last part of their names."""
    given = {
        "TIMEOUT_MS": "20000",
        "RETRY_MS": "1",
        "RETRY_MAX_MS": "20",
        "FRAME_BYTES": "8192",
        "IDENTITY": identity or SHAPE.facts().identity.hex(),
        "MARKOV_IDENTITY": markov_identity or SHAPE.facts().markov_identity.hex(),
    } | changes
    environ = {f"VLLM_DSPARK_REMOTE_{name}": value for name, value in given.items()}
    settings = Settings.from_environ({"VLLM_DSPARK_REMOTE": endpoint} | environ)
    assert settings is not None
    return RemoteDrafter(settings, FACTS, draw=lambda: 0.5)


class WorkerProcess:
    """`x86-worker mock` of FACTS at one endpoint, once it listens.  key_file: what its clients must prove."""

    def __init__(self, folder: Path, endpoint: str, key_file: Path | None = None) -> None:
        ready_file = folder / "ready.json"
        command = [sys.executable, "-m", "x86_worker", "mock", *MOCK_OPTIONS]
        command += ["--listen", endpoint, "--ready-file", str(ready_file)]
        command += ["--key-file", str(key_file)] if key_file is not None else []
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._listening.wait(PATIENCE_S) or self.process.poll() is not None:
            self.kill()
            raise AssertionError("".join(self.log))
        ready = json.loads(ready_file.read_text(encoding="utf-8"))
        (self.endpoint,) = ready["endpoints"]
        self.identity: str = ready["identity"]
        self.markov_identity: str = ready["markov_identity"]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if "listens on" in line:
                self._listening.set()
        self._listening.set()

    def drafter(self, **changes: str) -> RemoteDrafter:
        """An engine's drafter that fits it."""
        return make_drafter(
            self.endpoint, identity=self.identity, markov_identity=self.markov_identity, **changes
        )

    def request(self, drafter: RemoteDrafter) -> OneRequest:
        """A request whose drafts this worker makes."""
        return OneRequest(drafter, bytes.fromhex(self.identity))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it unless it has ended; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.process.stderr is not None and not self.process.stderr.closed:
            self.stop(signal.SIGKILL)
