"""Doctor: what is planted in a healthy host is found by one check alone, which names the repair."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_pair import DIGEST, PORT_FILES, Pair, elsewhere, pair_in, v1_worker, wrong
from ofl.doctor.clock import Clock
from ofl.doctor.findings import (
    BROKEN,
    Result,
    exit_status,
)
from ofl.doctor.installed import Library
from ofl.doctor.routes import Way
from ofl.doctor.simulated import ENGINE, GID_FILE, NETDEV, NOW_S, WORKER, gid_of, write


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return pair_in(tmp_path)


def test_in_a_healthy_pair_of_hosts_nothing_is_found(pair: Pair) -> None:
    findings = pair.examine()
    assert wrong(findings) == []
    assert exit_status(findings) == 0
    skips = {finding.check for finding in findings if finding.result is Result.SKIP}
    assert skips == {"huge-pages", "peer-settings"}
    assert not [finding for finding in findings if finding.result is Result.SKIP and not finding.seen]


Plant = Callable[[Pair], dict[str, Any] | None]


def file(path: str, text: str) -> Plant:
    def plant(pair: Pair) -> None:
        write(pair.engine.root, path, text)

    return plant


def host(**changes: Any) -> Plant:
    def plant(pair: Pair) -> None:
        pair.engine = replace(pair.engine, **changes)

    return plant


def worker(**changes: Any) -> Plant:
    def plant(pair: Pair) -> None:
        pair.worker = replace(pair.worker, **changes)

    return plant


def theirs(**changes: Any) -> Plant:
    return lambda pair: {"theirs": changes}


def open_key(pair: Pair) -> None:
    pair.key.chmod(0o644)


def no_key(pair: Pair) -> None:
    pair.key.unlink()


def small_worker(pair: Pair) -> None:
    pair.worker = replace(pair.worker, interfaces=elsewhere(WORKER, 1500))


def small_packets_there(pair: Pair) -> None:
    choice = lambda own: (True, "rocep1s0f0, path MTU 1024, and more")  # noqa: E731
    pair.worker = replace(pair.worker, rdma_choice=choice)


def small_worker_and_packets(pair: Pair) -> None:
    small_worker(pair)
    small_packets_there(pair)


def unknown_way(remote: str, source: str | None) -> Way:
    raise OSError(101, "Network is unreachable")


def library(**changes: str) -> Plant:
    given = {"path": "/l.so", "sha256": DIGEST, "machine": "aarch64", "recorded": DIGEST, "error": ""}
    return host(library=lambda: Library(**(given | changes)))


PLANTED: dict[str, tuple[Plant, str, tuple[str, ...]]] = {
    "an older package here than there": (
        worker(versions=lambda: {"ofl-transport": "9.1.10"}),
        "peer-versions",
        ("pip install ofl-transport==9.1.10", "on spark-1"),
    ),
    "an older package there than here": (
        worker(versions=lambda: {"ofl-transport": "0.0.9"}),
        "peer-versions",
        ("pip install ofl-transport==", "on x86"),
    ),
    "a copy that shadows the installed package": (
        lambda pair: (
            host(versions=lambda: {"ofl-transport": "0.0.1"})(pair),
            worker(versions=dict)(pair),
        )[0],
        "package-version",
        ("PYTHONPATH", "ofl-transport==0.0.1"),
    ),
    "a contract of another version": (
        theirs(contracts={"dspark": 2}),
        "peer-contracts",
        ("pip install --upgrade ofl-transport on spark-1",),
    ),
    "a library for the other machine": (library(machine="x86_64"), "native-library", ("linux_aarch64",)),
    "a library that was changed": (library(recorded="cd" * 32), "native-library", ("--force-reinstall",)),
    "no library": (
        library(machine="", sha256="", error="libofl.so is in none of: /opt"),
        "native-library",
        ("--force-reinstall", "ofl-transport=="),
    ),
    "another build of the same library": (
        worker(machine="aarch64", library=lambda: Library("/l.so", DIGEST, "aarch64", "", "")),
        "peer-library",
        ("--force-reinstall", "on both hosts"),
    ),
    "a bind address that is not here": (
        host(interfaces=elsewhere("10.77.0.99")),
        "bind-address",
        (f"ip address add {ENGINE}/PREFIX", "10.77.0.99"),
    ),
    "a route over the office network": (
        host(way=lambda remote, source: Way("eth0", "192.0.2.1", source or "192.0.2.20")),
        "route",
        (f"ip route replace {WORKER} dev {NETDEV} src {ENGINE}",),
    ),
    "a route through a gateway": (
        host(way=lambda remote, source: Way(NETDEV, "10.77.0.254", source or ENGINE)),
        "route",
        (f"ip route replace {WORKER} dev {NETDEV}",),
    ),
    "no route": (
        host(way=unknown_way, connect_fault=lambda *_: "network is unreachable"),
        "route",
        (f"ip route replace {WORKER} dev {NETDEV} src {ENGINE}",),
    ),
    "nobody listens": (
        host(connect_fault=lambda *_: "connection refused"),
        "reachable",
        ("port 18620", WORKER, "firewall"),
    ),
    "no GID for the bind address": (
        file(GID_FILE, gid_of("10.77.9.9")),
        "rdma-gid",
        (f"ip address add {ENGINE}/PREFIX", f"10.77.9.9 ({NETDEV})"),
    ),
    "a provider of RDMA that is missing": (
        host(rdma_choice=lambda own: (False, "libibverbs.so.1 is not there")),
        "rdma-gid",
        ("libibverbs1", "libibverbs.so.1 is not there"),
    ),
    "a port that is down": (
        file(f"{PORT_FILES}/state", "1: DOWN"),
        "rdma-port",
        (f"ip link set dev {NETDEV} up", "rocep1s0f0/1"),
    ),
    "RoCE v1 at the other end": (v1_worker, "peer-gid-type", (WORKER, "on x86", "-m 2")),
    "an MTU at the other end that differs": (
        small_worker_and_packets,
        "peer-mtu",
        (f"ip link set dev {NETDEV} mtu 9000 on x86",),
    ),
    "RDMA packets of another size there": (
        small_packets_there,
        "peer-mtu",
        (f"ip link set dev {NETDEV} mtu 9000 on x86",),
    ),
    "locked memory that is limited": (
        host(limits=lambda: {"nofile": 1024, "memlock_bytes": 8 << 20}),
        "memlock",
        ("ulimit -l 65536", "LimitMEMLOCK=infinity", "--ulimit memlock=-1"),
    ),
    "a kernel without pidfd": (
        file("proc/sys/kernel/osrelease", "4.18.0-553.el8"),
        "kernel",
        ("5.4", "4.18.0-553.el8"),
    ),
    "io_uring switched off": (
        file("proc/sys/kernel/io_uring_disabled", "2"),
        "io-uring",
        ("sysctl -w kernel.io_uring_disabled=0",),
    ),
    "a kernel whose io_uring cannot read": (file("proc/sys/kernel/osrelease", "5.4.0"), "io-uring", ("5.6",)),
    "a container's small /dev/shm": (
        host(file_system=lambda path: (64 << 20, 60 << 20)),
        "shm-size",
        ("--shm-size=1024m", "remount,size=1024m /dev/shm"),
    ),
    "a clock that nothing keeps in step": (
        host(clock=lambda: Clock(False, 16_000_000)),
        "clock-sync",
        ("timedatectl set-ntp true",),
    ),
    "a clock that is ahead": (theirs(written_s=NOW_S + 30), "peer-clock", ("timedatectl set-ntp true",)),
    "a clock that is behind, or an old report": (
        theirs(written_s=NOW_S - 30),
        "peer-clock",
        ("ssh x86", "worker.json"),
    ),
    "a key that others may read": (open_key, "key-file", ("chmod 600",)),
    "a key that is not there": (no_key, "key-file", ("ofl keygen",)),
    "a port that somebody has": (
        host(listen_fault=lambda own, port: "address already in use"),
        "listen-port",
        ("ss -ltnp 'sport = :9400'",),
    ),
    "another drafter than the worker's": (
        theirs(identities={"identity": "cd" * 32}),
        "peer-identities",
        (f"export VLLM_DSPARK_REMOTE_IDENTITY={'cd' * 32}",),
    ),
    "a policy of another rank's": (
        theirs(alike={"VLLM_DSPARK_REMOTE_POLICY": "shadow"}),
        "peer-settings",
        ("export VLLM_DSPARK_REMOTE_POLICY=capacity on x86",),
    ),
    "memory that tables do not fit into": (
        file("proc/meminfo", "MemAvailable: 2097152 kB\nSwapTotal: 0 kB"),
        "tables-memory",
        ("free 2048 MiB",),
    ),
    "swap below tables": (
        file("proc/meminfo", "MemAvailable: 100000000 kB\nSwapTotal: 4096 kB"),
        "swap",
        ("swapoff -a",),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_by_one_check_alone_with_its_repair(pair: Pair, name: str) -> None:
    plant, check, words = PLANTED[name]
    more = plant(pair)
    (found,) = wrong(pair.examine(**(more or {})))
    assert found.check == check
    assert found.repair != BROKEN
    for word in words:
        assert word in found.repair


def test_a_copied_package_has_no_version_to_compare(pair: Pair) -> None:
    pair.engine = replace(pair.engine, versions=dict)
    findings = {finding.check: finding for finding in pair.examine()}
    assert "copied rather than installed" in findings["package-version"].seen
    assert findings["peer-versions"].result is Result.SKIP
