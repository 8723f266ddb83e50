"""A real `x86-worker mock` process and a real connection to it, for tests over real wires."""

import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from engine_twin import MOCK, ShapeChanges, shape_of, step
from ofl.client import Client, connect
from ofl.contract.dspark_v1 import (
    SERVICE,
    VERSION,
    Envelope,
    Hello,
    HelloReply,
    Op,
    Policy,
    Reply,
    Request,
    Shape,
    Stats,
    StatsReply,
    Step,
    StepEntry,
    StepReply,
    decode_reply,
    encode_request,
)

FRAME_BYTES = 1 << 20
TIMEOUT_S = 20.0
ANYWHERE = "tcp://127.0.0.1:0"


def soon() -> int:
    """A deadline that a healthy test never meets."""
    return time.monotonic_ns() + int(TIMEOUT_S * 1e9)


class WorkerProcess:
    """`x86-worker mock` with the shape of `engine_twin.MOCK`, once it listens."""

    def __init__(self, folder: Path, *options: str, listen: Sequence[str] = (ANYWHERE,)) -> None:
        self.ready_file = folder / "ready.json"
        command = [sys.executable, "-m", "x86_worker", "mock", "--ready-file", str(self.ready_file)]
        command += ["--vocabulary", str(MOCK.vocabulary), "--hidden-size", str(MOCK.projected_elements)]
        command += ["--taps", str(MOCK.tap_count), "--block-length", str(MOCK.block_length)]
        command += ["--window", str(MOCK.window), "--max-positions", str(MOCK.max_positions)]
        command += ["--max-frame-mib", "1", *options]
        command += [word for endpoint in listen for word in ("--listen", endpoint)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._listening.wait(TIMEOUT_S), self.log
        self.ready = json.loads(self.ready_file.read_text())
        self.endpoints: list[str] = self.ready["endpoints"]

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if "listens on" in line:
                self._listening.set()
        self._listening.set()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    def kill(self) -> None:
        self.process.kill()
        self.stop()

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


class WireEngine:
    """An engine over a real connection.

    engine_id: its own unless given; the worker may learn late that an earlier connection has ended.
    key_file: what it proves.
    """

    def __init__(
        self,
        endpoint: str,
        engine_id: bytes | None = None,
        frame_bytes: int = FRAME_BYTES,
        key_file: Path | None = None,
    ) -> None:
        self.client: Client = connect(
            endpoint,
            service=SERVICE,
            version_min=VERSION,
            version_max=VERSION,
            max_frame_bytes=frame_bytes,
            deadline_ns=soon(),
            key_file=key_file,
        )
        self.engine_id = engine_id or uuid.uuid4().bytes
        self.shape: Shape = shape_of()
        self.epoch = 0
        self.rounds = 0

    def submit(self, request: Request) -> tuple[int, Envelope]:
        op = {Hello: Op.HELLO, Step: Op.STEP, Stats: Op.STATS}[type(request)]
        self.rounds += 1
        envelope = Envelope(op, self.epoch, self.rounds)
        parts = encode_request(envelope, request, self.shape)
        return self.client.submit(parts, deadline_ns=soon()), envelope

    def ask(self, request: Request) -> Reply:
        sequence, envelope = self.submit(request)
        body = self.client.wait(sequence, deadline_ns=soon())
        return decode_reply(body, envelope, request, self.shape)

    def hello(self, policy: Policy = Policy.SHADOW, epoch: int = 1, **changes: Unpack[ShapeChanges]) -> Reply:
        self.epoch = epoch
        self.shape = replace(self.shape, **changes)
        return self.ask(Hello(self.engine_id, policy, self.shape))

    def opened(self, epoch: int = 1) -> "WireEngine":
        reply = self.hello(epoch=epoch)
        assert isinstance(reply, HelloReply), reply
        return self

    def step(self, *entries: StepEntry, life: int = 0) -> StepReply:
        reply = self.ask(step(*entries, life=life))
        assert isinstance(reply, StepReply), reply
        return reply

    def close(self) -> None:
        self.client.close()


def figures(endpoint: str) -> dict[str, Any]:
    """The worker's STATS, over a connection of its own."""
    asker = WireEngine(endpoint)
    try:
        reply = asker.ask(Stats())
        assert isinstance(reply, StatsReply), reply
        found: dict[str, Any] = json.loads(reply.text)
        return found
    finally:
        asker.close()
