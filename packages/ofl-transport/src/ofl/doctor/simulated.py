"""The fake twin of `host.Host`: an engine's or a worker's host that does not exist, and in which all is well.

Two of them are joined by one RDMA link, 10.77.0.2 (engine) to 10.77.0.1 (worker).  For tests of every package that adds
checks; a test plants what is wrong by changing a file below the root, or by `dataclasses.replace`.
"""

from pathlib import Path

import ofl
from ofl.doctor.clock import Clock
from ofl.doctor.host import Host
from ofl.doctor.installed import Library
from ofl.doctor.routes import Way
from ofl.hostinfo import Interface

ENGINE, WORKER = "10.77.0.2", "10.77.0.1"
NETDEV, DEVICE = "enp1s0f0", "rocep1s0f0"
NOW_S = 1_800_000_000.0
GID_INDEX = 3
FILES = {
    "proc/sys/kernel/osrelease": "6.11.0-1014-nvidia",
    "proc/sys/kernel/io_uring_disabled": "0",
    "proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000",
    "proc/meminfo": "MemAvailable: 100000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    "HugePages_Free: 5000\nHugepagesize: 2048 kB",
    "sys/class/infiniband/rocep1s0f0/ports/1/state": "4: ACTIVE",
    "sys/class/infiniband/rocep1s0f0/ports/1/link_layer": "Ethernet",
    "sys/class/infiniband/rocep1s0f0/ports/1/rate": "100 Gb/sec (4X EDR)",
    "sys/class/infiniband/rocep1s0f0/ports/1/gid_attrs/types/3": "RoCE v2",
    "sys/class/infiniband/rocep1s0f0/ports/1/gid_attrs/ndevs/3": NETDEV,
}
GID_FILE = "sys/class/infiniband/rocep1s0f0/ports/1/gids/3"


def write(root: Path, path: str, text: str) -> None:
    """Put a file below the root, over one that is there."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"{text}\n", encoding="utf-8")


def gid_of(address: str) -> str:
    """The GID that stands for an IPv4 address, as the kernel writes it."""
    first, second, third, fourth = map(int, address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{first:02x}{second:02x}:{third:02x}{fourth:02x}"


def healthy(root: Path, name: str, address: str) -> Host:
    """A host with one RDMA link, whose own end has the address.  root: an empty folder."""
    write(root, "proc/sys/kernel/hostname", name)
    write(root, GID_FILE, gid_of(address))
    for path, text in FILES.items():
        write(root, path, text)
    (root / "dev/shm").mkdir(parents=True)
    machine = "aarch64" if address == ENGINE else "x86_64"
    digest = machine.encode().hex().ljust(64, "0")
    library = Library("/opt/ofl/libofl.so", digest, machine, digest, "")
    versions = {"ofl-transport": ofl.__version__}
    return Host(
        root=root,
        environ={},
        machine=machine,
        now_s=lambda: NOW_S,
        interfaces=lambda: [
            Interface("lo", 65536, ("127.0.0.1",)),
            Interface("eth0", 1500, ("192.0.2.20",)),
            Interface(NETDEV, 9000, (address,)),
        ],
        limits=lambda: {"nofile": 1 << 20, "memlock_bytes": -1},
        resolve=lambda host, port, like: host,
        way=lambda remote, source: Way(NETDEV, "", source or address),
        rdma_choice=lambda own: (True, f"{DEVICE} port 1 GID {GID_INDEX} for {own}, path MTU 4096, and more"),
        clock=lambda: Clock(True, 1500),
        file_system=lambda path: (16 << 30, 15 << 30),
        listen_fault=lambda own, port: "",
        connect_fault=lambda remote, port, source, timeout_s: "",
        library=lambda: library,
        versions=lambda: dict(versions),
    )
