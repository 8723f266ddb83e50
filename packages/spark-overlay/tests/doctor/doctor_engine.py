"""An engine's host that does not exist, in which all is well, and a worker that answers in this process."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ofl.contract.dspark_v1 import (
    Envelope,
    Kind,
    Op,
    Shape,
    StatsReply,
    decode_request,
    encode_reply,
    peek,
)
from ofl.doctor.findings import Facts, Finding, Result
from ofl.doctor.host import Host
from ofl.doctor.simulated import ENGINE, WORKER, healthy
from small_shape import SMALL_SHAPE
from spark_overlay import probe
from spark_overlay.doctor.asks import BoundFile, EngineAsks
from spark_overlay.doctor.command import examine_engine
from spark_overlay.doctor.gather import Examined
from spark_overlay.settings import PREFIX, Settings
from spark_overlay.simulation.transport import SimulatedWire
from spark_overlay.simulation.worker import SimulatedWorker

IDENTITY, MARKOV = "ab" * 32, "cd" * 32
ENDPOINT = f"rdma://{WORKER}:18620?bind={ENGINE}"
COMMAND = (
    "vllm",
    "serve",
    "model",
    "--speculative-config",
    '{"method": "dspark", "num_speculative_tokens": 5}',
)


def shape(identity: str = IDENTITY) -> Shape:
    """Of a worker that serves the drafter."""
    return replace(SMALL_SHAPE, identity=bytes.fromhex(identity), markov_identity=bytes.fromhex(MARKOV))


class Worker(SimulatedWorker):
    """As the simulated one, with figures for the probe."""

    def answer(self, body: Any) -> bytes:
        head = peek(body, Kind.REQUEST)
        _, request = decode_request(body, self.shape)
        if head.op is Op.STATS:
            envelope = Envelope(Op.STATS, head.epoch, head.round)
            return b"".join(encode_reply(envelope, StatsReply("{}"), request))
        return super().answer(body)


def asking(worker: SimulatedWorker | None) -> Any:
    """A question to that worker; None: nobody is there."""

    def ask(settings: Settings, timeout_s: float) -> dict[str, probe.Value]:
        wire = SimulatedWire(worker.answer if worker else bytes, refuse=worker is None)
        identity, markov = (bytes.fromhex(value) for value in (settings.identity, settings.markov_identity))
        options = probe.Options(settings.endpoint, identity, markov, timeout_s=timeout_s)
        code, results = probe.probe(options, wire.connect, time.monotonic_ns)
        return results | {"exit_status": code}

    return ask


@dataclass
class Site:
    """What a test changes before it examines."""

    folder: Path
    host: Host
    environ: dict[str, str]
    asks: EngineAsks
    command: Sequence[str] = COMMAND
    identity_file: Path | None = None
    rank: int = 0
    timeout_s: float = 1.0
    peers: tuple[Path, ...] = ()
    facts: Facts = field(default_factory=dict)

    def examine(self) -> list[Finding]:
        examined = Examined(self.environ, self.command, self.identity_file, self.timeout_s, self.rank)
        self.facts, findings = examine_engine(self.host, self.asks, examined, self.peers)
        return findings

    def wrong(self) -> list[Finding]:
        return [found for found in self.examine() if found.result in (Result.FAIL, Result.WARN)]

    def finding(self, check: str) -> Finding:
        (found,) = [found for found in self.examine() if found.check == check]
        return found


def site_in(folder: Path) -> Site:
    """A healthy one.  folder: an empty one."""
    key = folder / "key"
    key.write_text("k" * 64)
    key.chmod(0o600)
    identity = folder / "identity.json"
    identity.write_text(f'{{"identity": "{IDENTITY}", "markov_identity": "{MARKOV}"}}')
    environ = {
        PREFIX: ENDPOINT,
        f"{PREFIX}_IDENTITY": IDENTITY,
        f"{PREFIX}_MARKOV_IDENTITY": MARKOV,
        f"{PREFIX}_KEY_FILE": str(key),
        f"{PREFIX}_STATS_FILE": str(folder / "stats.json"),
        f"{PREFIX}_READY_FILE": str(folder / "ready.json"),
        "VLLM_PLUGINS": "spark_overlay",
        "PATH": "/usr/bin",
    }
    asks = EngineAsks(
        engine_version=lambda: "0.33.0",
        plugin_seen=lambda: True,
        bound_file=lambda version: BoundFile("/x/__init__.py", "stock", "/x/__init__.py is the stock file"),
        write_fault=lambda path: "",
        ask_worker=asking(Worker(shape())),
    )
    host = healthy(folder / "root", "spark-1", ENGINE)
    return Site(folder, host, environ, asks, identity_file=identity)
