"""Doctor: single judgements of a host, and the machinery of checks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_pair import PORT_FILES, Pair, elsewhere, pair_in, unknown_name, v1_worker, wrong
from ofl.doctor.checks import HOST_CHECKS
from ofl.doctor.findings import (
    BROKEN,
    Check,
    Finding,
    Result,
    Verdict,
    exit_status,
    failed,
    judge_all,
    passed,
    skipped,
    table,
    worst,
)
from ofl.doctor.gather import Wanted, gather
from ofl.doctor.link_checks import rdma_mtu_of
from ofl.doctor.peers import PEER_CHECKS
from ofl.doctor.simulated import ENGINE, NETDEV, WORKER, write


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return pair_in(tmp_path)


# --- single judgements that the pair above does not reach ---


def checks_of(pair: Pair, wanted: Wanted) -> dict[str, Finding]:
    facts = gather(pair.engine, wanted)
    return {finding.check: finding for finding in judge_all(HOST_CHECKS, facts)}


def test_with_nothing_asked_for_only_the_host_itself_is_judged(pair: Pair) -> None:
    found = checks_of(pair, Wanted())
    judged = {name for name, finding in found.items() if finding.result is not Result.SKIP}
    assert judged == {"package-version", "native-library", "kernel", "io-uring", "shm-size", "clock-sync"}


def test_a_name_on_this_host_needs_no_link(pair: Pair) -> None:
    found = checks_of(pair, Wanted(endpoint="shm://drafter", listen=("shm://other",)))
    assert found["route"].result is found["reachable"].result is found["rdma-gid"].result is Result.SKIP
    assert found["listen-address"].result is Result.PASS
    assert found["listen-port"].result is Result.SKIP


def test_without_a_bind_address_the_kernels_own_choice_is_judged(pair: Pair) -> None:
    found = checks_of(pair, Wanted(endpoint=f"rdma://{WORKER}:18620"))
    assert found["bind-address"].result is Result.SKIP
    assert found["route"].seen == f"{WORKER} is reached by {NETDEV} from {ENGINE}"
    assert found["rdma-gid"].seen == f"{ENGINE} is GID 3 of rocep1s0f0 port 1"
    assert found["reachable"].result is Result.SKIP


def test_a_name_that_has_no_address_is_told_with_the_name(pair: Pair) -> None:
    pair.engine = replace(pair.engine, resolve=unknown_name)
    found = checks_of(pair, Wanted(endpoint="tcp://worker:1", listen=("tcp://metrics:1",), connect_s=1))
    assert found["route"].result is Result.FAIL
    assert "/etc/hosts" in found["route"].repair
    assert "worker has no address" in found["route"].seen
    assert found["reachable"].result is Result.SKIP
    assert found["listen-address"].result is Result.FAIL
    assert found["listen-port"].result is Result.SKIP


def test_an_address_to_listen_on_must_be_here_and_a_wildcard_always_is(pair: Pair) -> None:
    found = checks_of(pair, Wanted(listen=("tcp://10.9.9.9:1",)))
    assert found["listen-address"].result is Result.FAIL
    assert ENGINE in found["listen-address"].repair
    assert found["listen-port"].result is Result.SKIP
    pair.engine = replace(pair.engine, listen_fault=lambda own, port: "address already in use")
    found = checks_of(pair, Wanted(listen=("tcp://0.0.0.0:7",)))
    assert found["listen-address"].result is Result.PASS
    assert ":7'" in found["listen-port"].repair


def test_rdma_where_there_is_no_device_says_so(pair: Pair) -> None:
    pair.engine = replace(pair.engine, root=pair.folder / "empty")
    found = checks_of(pair, Wanted(endpoint=f"rdma://{WORKER}:1?bind={ENGINE}"))
    assert found["rdma-gid"].result is Result.FAIL
    assert "no RDMA device" in found["rdma-gid"].repair
    for name in ("rdma-port", "rdma-gid-type", "rdma-mtu", "kernel", "io-uring"):
        assert found[name].result is Result.SKIP


def test_a_gid_of_the_first_roce_is_a_warning_while_both_ends_have_it(pair: Pair) -> None:
    write(pair.engine.root, f"{PORT_FILES}/gid_attrs/types/3", "IB/RoCE v1")
    v1_worker(pair)
    (found,) = wrong(pair.examine())
    assert (found.check, found.result) == ("rdma-gid-type", Result.WARN)


@pytest.mark.parametrize(
    ("interface_mtu", "packets", "result", "words"),
    [
        (9000, 4096, Result.PASS, ""),
        (1500, 1024, Result.WARN, "mtu 9000 at both ends"),
        (9000, 1024, Result.FAIL, "mtu 9000,"),
        (1500, 4096, Result.FAIL, "mtu 9000,"),
        (1500, 512, Result.FAIL, "mtu 1500,"),
    ],
)
def test_rdma_packets_are_as_large_as_the_interface_allows(
    pair: Pair, interface_mtu: int, packets: int, result: Result, words: str
) -> None:
    pair.engine = replace(
        pair.engine,
        interfaces=elsewhere(ENGINE, interface_mtu),
        rdma_choice=lambda own: (True, f"rocep1s0f0, path MTU {packets}, and more"),
    )
    found = checks_of(pair, Wanted(endpoint=f"rdma://{WORKER}:1?bind={ENGINE}"))["rdma-mtu"]
    assert found.result is result
    assert words in found.repair


@pytest.mark.parametrize(
    ("mtu", "packet"), [(9000, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (300, 0)]
)
def test_the_largest_packet_leaves_room_for_96_bytes_of_headers(mtu: int, packet: int) -> None:
    assert rdma_mtu_of(mtu) == packet


@pytest.mark.parametrize(
    ("limit", "capabilities", "result"),
    [
        (-1, 0, Result.PASS),
        (1 << 20, 1 << 14, Result.PASS),
        (64 << 20, 0, Result.PASS),
        ((64 << 20) - 1, 0, Result.FAIL),
    ],
)
def test_locked_memory_counts_where_the_limit_holds(
    pair: Pair, limit: int, capabilities: int, result: Result
) -> None:
    pair.engine = replace(pair.engine, limits=lambda: {"memlock_bytes": limit})
    write(pair.engine.root, "proc/self/status", f"CapEff:\t{capabilities:016x}")
    found = checks_of(pair, Wanted(endpoint=f"rdma://{WORKER}:1?bind={ENGINE}"))["memlock"]
    assert found.result is result


def test_tables_in_huge_pages_need_as_many_as_they_fill(pair: Pair) -> None:
    found = checks_of(pair, Wanted(tables_mib=10_000, huge_pages=True))
    assert found["huge-pages"].result is found["swap"].result is Result.PASS
    assert found["tables-memory"].result is Result.SKIP
    found = checks_of(pair, Wanted(tables_mib=10_001, huge_pages=True))  # 5000.5 pages of 2 MiB
    assert "vm.nr_hugepages=5001" in found["huge-pages"].repair
    write(pair.engine.root, "proc/meminfo", "MemAvailable: 5 kB")
    found = checks_of(pair, Wanted(tables_mib=1, huge_pages=True))
    assert found["huge-pages"].result is Result.SKIP


@pytest.mark.parametrize(("role", "result"), [("engine", Result.FAIL), ("worker", Result.WARN)])
def test_shared_memory_is_what_engines_need(pair: Pair, role: str, result: Result) -> None:
    pair.engine = replace(pair.engine, file_system=lambda path: ((1 << 30) - 1, 0))
    assert checks_of(pair, Wanted(role=role))["shm-size"].result is result
    pair.engine = replace(pair.engine, file_system=lambda path: (1 << 30, 0))
    assert checks_of(pair, Wanted(role=role))["shm-size"].result is Result.PASS


def test_what_the_kernel_does_not_tell_is_not_judged(pair: Pair) -> None:
    def no(*_: object) -> Any:
        raise OSError(38, "Function not implemented")

    pair.engine = replace(pair.engine, clock=no, file_system=no)
    found = checks_of(pair, Wanted())
    for name in ("clock-sync", "shm-size"):
        assert found[name].result is Result.SKIP
        assert "Function not implemented" in found[name].seen


# --- the machinery ---


def test_a_check_that_raises_or_names_an_undeclared_repair_has_failed() -> None:
    def broken(facts: dict[str, Any]) -> Verdict:
        raise KeyError("host")

    checks = (
        Check("one", "holds", (), broken),
        Check("two", "holds", ("do this",), lambda facts: failed("seen", "do that")),
        Check("three", "holds", ("do {what}",), lambda facts: failed("seen", "do {what}", other=1)),
    )
    findings = judge_all(checks, {})
    assert [finding.result for finding in findings] == [Result.FAIL] * 3
    assert {finding.repair for finding in findings} == {BROKEN}
    assert exit_status(findings) == 1


def test_of_several_things_the_worst_is_told_and_nothing_is_skipped() -> None:
    assert worst([], "none").result is Result.SKIP
    assert worst([passed("a"), skipped("b"), passed("c")], "").seen == "a; c"
    assert worst([passed("a"), failed("b", "r"), passed("c")], "").seen == "b"
    assert worst([skipped("b")], "").seen == "b"


def test_the_table_has_every_repair_with_a_sign_for_what_varies() -> None:
    check = Check("a-check", "it holds", ("do {what} | now", "or this"), lambda facts: passed(""))
    assert table([check]).splitlines()[2] == "| `a-check` | it holds | do … \\| now; or: or this |"
    assert "it only tells" in table([replace(check, repairs=())])


def test_names_of_checks_are_unique() -> None:
    names = [check.name for check in (*HOST_CHECKS, *PEER_CHECKS)]
    assert len(set(names)) == len(names)
