"""Two hosts that doctor compares: the engine's, which is examined, and the worker's, whose report is given."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ofl.doctor import report
from ofl.doctor.findings import (
    Finding,
    Result,
)
from ofl.doctor.gather import Wanted, gather
from ofl.doctor.host import Host
from ofl.doctor.run import examine
from ofl.doctor.simulated import ENGINE, NETDEV, NOW_S, WORKER, healthy, write
from ofl.hostinfo import Interface

DIGEST = "ab" * 32
PORT_FILES = "sys/class/infiniband/rocep1s0f0/ports/1"


@dataclass
class Pair:
    """The engine's host, which is examined, and the worker's, whose report it is compared with."""

    folder: Path
    engine: Host
    worker: Host
    key: Path

    def wanted(self) -> Wanted:
        return Wanted(
            role="engine",
            endpoint=f"rdma://{WORKER}:18620?bind={ENGINE}",
            listen=("tcp://192.0.2.20:9400",),
            key_file=str(self.key),
            connect_s=1.0,
            tables_mib=4096,
        )

    def worker_wanted(self) -> Wanted:
        return Wanted(role="worker", listen=(f"rdma://{WORKER}:18620",))

    def report(self, **changes: Any) -> Path:
        """What doctor prints on the worker's host, as a file that was written at that moment."""
        facts = gather(self.worker, self.worker_wanted()) | {"identities": {"identity": DIGEST}} | changes
        path = self.folder / "worker.json"
        path.write_text(json.dumps(report.document("x86-worker doctor", facts, [])))
        os.utime(path, (NOW_S, NOW_S))
        return path

    def examine(self, wanted: Wanted | None = None, **more: Any) -> list[Finding]:
        ours = {"identities": {"identity": DIGEST}, "alike": {"VLLM_DSPARK_REMOTE_POLICY": "capacity"}}
        changes = more.pop("theirs", {})
        path = self.report(**changes)
        _, findings = examine(self.engine, wanted or self.wanted(), peers=[path], more=ours | more)
        return findings


def pair_in(folder: Path) -> Pair:
    """A healthy pair.  folder: an empty one."""
    key = folder / "key"
    key.write_text("k" * 64)
    key.chmod(0o600)
    engine = healthy(folder / "engine", "spark-1", ENGINE)
    worker = healthy(folder / "worker", "x86", WORKER)
    return Pair(folder, engine, worker, key)


def wrong(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.result in (Result.FAIL, Result.WARN)]


def elsewhere(address: str, mtu: int = 9000) -> Callable[[], list[Interface]]:
    return lambda: [Interface("eth0", 1500, ("192.0.2.20",)), Interface(NETDEV, mtu, (address,))]


def v1_worker(pair: Pair) -> None:
    write(pair.worker.root, f"{PORT_FILES}/gid_attrs/types/3", "IB/RoCE v1")


def unknown_name(name: str, port: int, like: str | None) -> str:
    raise OSError(-2, "Name or service not known")
