"""A server in VM b, and clients in VM a.  Owns addresses, and how long things may take there."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from rdma_vm.job import Job
from rdma_vm.stage import TESTS
from rdma_vm.two_vms import TwoVms
from rdma_vm.vm import Vm
from transport_times import scaled, span_ns
from two_vms import steps
from two_vms.remote import LIFE_S_MAX, Remote, next_line

SERVE = str(TESTS / "peers" / "serve.py")
SLACK_S = scaled(2.0)
"""What a busy machine may add: two emulated processors, both ends, looking at files.  Without detection it is 200 s."""


@dataclass(frozen=True)
class Times:
    """Of a connection, in seconds of this machine."""

    heartbeat_s: float
    loss_s: float


DEFAULT = Times(scaled(0.05), scaled(0.25))
"""The library's own, for a machine as slow as this one."""
FAST = Times(scaled(0.05), scaled(0.5))
PATIENT = Times(scaled(0.05), scaled(20))
"""For whatever is not to be told by silence."""


@dataclass(frozen=True)
class Server:
    """peers/serve.py in VM b says what it answers."""

    job: Job
    endpoint: str


@dataclass(frozen=True)
class Rig:
    """What a test of two ends needs."""

    vms: TwoVms

    def serve(self, endpoint: str | None = None) -> Server:
        """Begin a server and wait until it listens; without an endpoint on b's IPv4 address and any port."""
        wanted = endpoint or f"rdma://{self.vms.b.address}:0"
        limits = [f"handshake_ns={span_ns(5)}", f"frame_ns={span_ns(20)}"]
        job = self.vms.b.start(self.vms.stage.python(SERVE, wanted, *limits), LIFE_S_MAX)
        return Server(job, heard(job, "listening on "))

    def echo_serve(self, *words: str) -> Server:
        """`ofl echo serve` with these words."""
        job = self.vms.b.start(self.ofl("echo", "serve", *words), LIFE_S_MAX)
        return Server(job, heard(job, "ofl echo: listening on "))

    def ofl(self, *words: str) -> str:
        """The `ofl` command, for a shell in either VM."""
        return self.vms.stage.python("-m", "ofl", *words)

    def client(self, vm: Vm | None = None) -> Remote:
        """A process without a connection, in VM a if none is said."""
        return Remote(vm or self.vms.a, self.vms.stage)

    def connected(
        self, server: Server, times: Times = PATIENT, key_file: Path | None = None
    ) -> tuple[Remote, int]:
        """A process in VM a and the number of its one connection."""
        remote = self.client()
        return remote, connect(remote, server, times, key_file)


def connect(remote: Remote, server: Server, times: Times = PATIENT, key_file: Path | None = None) -> int:
    """One more connection of a process."""
    key = str(key_file) if key_file else None
    return remote.do(steps.connect, server.endpoint, times.heartbeat_s, times.loss_s, key)


def heard(job: Job, begins: str) -> str:
    """The rest of the first line that a job writes, which must begin so."""
    line = next_line(job, 0, begins)
    assert line.startswith(begins), line
    return line.removeprefix(begins).strip()


def gid_address(vm: Vm, index: int) -> str:
    """An entry of the table of GIDs of the VM's device, as the address that it stands for."""
    read = vm.run(f"cat /sys/class/infiniband/rxe0/ports/1/gids/{index}").check().stdout.strip()
    gid = ipaddress.IPv6Address(read)
    return str(gid.ipv4_mapped or gid)


def hw_counters(vm: Vm) -> dict[str, int]:
    """What the VM's device has counted since boot."""
    ended = vm.run("cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *").check()
    rows = (line.partition(":") for line in ended.stdout.splitlines())
    return {name: int(value) for name, _, value in rows}
