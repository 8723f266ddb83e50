"""What doctor asks of the real kernel and of what is installed, and the command `ofl doctor`."""

import base64
import contextlib
import ctypes
import hashlib
import importlib.metadata
import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ofl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ofl import native
from ofl.cli import main
from ofl.doctor import clock, installed, routes
from ofl.doctor import host as asks
from ofl.doctor.checks import HOST_CHECKS
from ofl.doctor.findings import table
from ofl.doctor.host import Host
from ofl.doctor.peers import PEER_CHECKS

DOCS = Path(__file__).parents[3] / "docs" / "operations" / "doctor.md"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


# --- routes ---


def test_the_way_to_this_host_itself_is_the_loopback_interface() -> None:
    assert routes.way_to("127.0.0.1", None).interface == "lo"
    assert routes.way_to("127.0.0.1", "127.0.0.1") == routes.Way("lo", "", "127.0.0.1")


def test_a_way_from_an_address_that_is_not_here_is_an_error_of_the_kernels() -> None:
    with pytest.raises(OSError, match=r"."):
        routes.way_to("127.0.0.1", "198.51.100.7")


def test_addresses_of_two_kinds_have_no_way_between_them() -> None:
    with pytest.raises(OSError, match="two kinds"):
        routes.way_to("::1", "127.0.0.1")


def test_a_request_is_as_rtnetlink_has_it() -> None:
    """struct nlmsghdr (16), struct rtmsg (12), RTA_DST and RTA_SRC of 4 bytes each (8 + 8)."""
    asked = routes.request("10.0.0.1", "10.0.0.2")
    assert len(asked) == 16 + 12 + 8 + 8
    size, kind, flags, _, _ = struct.unpack_from("=IHHII", asked)
    assert (size, kind, flags) == (len(asked), 26, 1)
    assert asked[16:20] == bytes([socket.AF_INET, 32, 32, 0])
    assert asked[28:] == struct.pack("=HH", 8, 1) + bytes([10, 0, 0, 1]) + struct.pack("=HH", 8, 2) + bytes(
        [10, 0, 0, 2]
    )
    zoned = routes.request("fe80::1%lo", None)
    assert zoned[-4:] == struct.pack("=I", socket.if_nametoindex("lo"))


def answer(*attributes: tuple[int, bytes], kind: int = 24) -> bytes:
    body = bytes(12)
    for number, data in attributes:
        body += struct.pack("=HH", 4 + len(data), number) + data + bytes(-len(data) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def test_an_answer_is_read_with_its_gateway_and_source() -> None:
    lo = struct.pack("=I", socket.if_nametoindex("lo"))
    message = answer((4, lo), (5, bytes([10, 0, 0, 254])), (7, bytes([10, 0, 0, 2])))
    assert routes.parse(message, None) == routes.Way("lo", "10.0.0.254", "10.0.0.2")
    assert routes.parse(message, "10.0.0.9").source == "10.0.0.9"


def test_an_error_of_the_kernels_is_raised_with_its_number() -> None:
    with pytest.raises(OSError, match="unreachable") as raised:
        routes.parse(struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -101) + bytes(16), None)
    assert raised.value.errno == 101


@given(st.binary(max_size=80))
def test_whatever_comes_as_an_answer_is_a_way_or_an_error(data: bytes) -> None:
    with contextlib.suppress(OSError):
        assert routes.parse(data, None).interface


def test_a_message_that_is_no_route_is_refused() -> None:
    lo = struct.pack("=I", socket.if_nametoindex("lo"))
    with pytest.raises(OSError, match="message 25"):
        routes.parse(answer((4, lo), kind=25), None)


# --- clock, sockets, files ---


def test_the_kernels_clock_says_how_far_it_may_be_off() -> None:
    found = clock.read_clock()
    assert found.error_us >= 0
    assert isinstance(found.synchronised, bool)


@pytest.mark.parametrize(("state", "status", "synchronised"), [(0, 0, True), (0, 0x40, False), (5, 0, False)])
def test_a_clock_is_in_step_unless_the_kernel_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, state: int, status: int, synchronised: bool
) -> None:
    def adjtimex(record: Any) -> int:
        record._obj.status = status
        record._obj.maxerror = 7
        return state

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(adjtimex=adjtimex))
    assert clock.read_clock() == clock.Clock(synchronised, 7)


def test_a_clock_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(adjtimex=lambda record: -1))
    with pytest.raises(OSError, match="adjtimex"):
        clock.read_clock()


def test_a_port_that_somebody_listens_on_is_told_and_a_free_one_is_not(listener: socket.socket) -> None:
    assert asks.listen_fault("127.0.0.1", listener.getsockname()[1]) == "address already in use"
    assert asks.listen_fault("127.0.0.1", 0) == ""


def test_a_connection_is_made_or_its_fault_told(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert asks.connect_fault("127.0.0.1", port, "127.0.0.1", 5) == ""
    listener.close()
    assert asks.connect_fault("127.0.0.1", port, None, 5) == "connection refused"


def test_a_connection_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", late)
    assert asks.connect_fault("127.0.0.1", 1, None, 2.5) == "no answer within 2.5 s"


def test_an_address_resolves_to_itself_in_whatever_family_it_has() -> None:
    assert asks.resolve("127.0.0.1", 1, "127.0.0.1") == "127.0.0.1"
    assert asks.resolve("::1", 1, "127.0.0.1") == "::1", "no address of the other's kind: its own"


def test_a_link_local_address_keeps_its_interface() -> None:
    assert asks.resolve("fe80::1%lo", 1, None) == "fe80::1%lo"


def test_a_file_system_has_a_size_and_a_missing_file_no_text(tmp_path: Path) -> None:
    total, free = asks.file_system(tmp_path)
    assert total >= free >= 0
    assert Host(root=tmp_path).text("/proc/none") == ""


# --- what is installed ---


def test_the_library_that_would_be_loaded_is_told_with_its_digest() -> None:
    found = installed.library()
    assert found.path == str(native.library_path())
    assert found.sha256 == hashlib.sha256(native.library_path().read_bytes()).hexdigest()
    assert found.machine == Host().machine
    assert found.error == ""


def test_a_library_that_is_missing_or_none_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OFL_LIBRARY", str(tmp_path / "absent.so"))
    assert "absent.so" in installed.library().error
    other = tmp_path / "other.so"
    other.write_bytes(b"\x7fELF" + bytes(14) + (183).to_bytes(2, "little") + bytes(60))
    monkeypatch.setenv("OFL_LIBRARY", str(other))
    native.loaded.cache_clear()
    try:
        found = installed.library()
    finally:
        native.loaded.cache_clear()
    assert found.machine == "aarch64"
    assert "cannot be loaded" in found.error


@pytest.mark.parametrize(
    ("data", "machine"),
    [
        (b"\x7fELF" + bytes(14) + b"\x3e\x00", "x86_64"),
        (b"\x7fELF" + bytes(14) + b"\xf3\x00", "ELF machine 243"),
        (b"\x7fELF", ""),
        (b"#!/bin/sh" + bytes(20), ""),
    ],
)
def test_the_machine_is_read_off_the_elf_header(data: bytes, machine: str) -> None:
    assert installed.elf_machine(data) == machine


def test_a_digest_is_the_one_that_the_installation_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    digest = hashlib.sha256(b"library").digest()
    value = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    path = tmp_path / "libofl.so"
    other = SimpleNamespace(hash=None, locate=lambda: path)
    file = SimpleNamespace(hash=SimpleNamespace(mode="sha256", value=value), locate=lambda: path)
    monkeypatch.setattr(importlib.metadata, "files", lambda name: [other, file])
    assert installed.recorded(path) == digest.hex()
    assert installed.recorded(tmp_path / "another.so") == ""


def test_what_is_not_installed_has_no_version_and_no_record(tmp_path: Path) -> None:
    assert installed.versions()["ofl-transport"] == ofl.__version__
    assert installed.recorded(tmp_path, "no-such-distribution-at-all") == ""


# --- the command ---


def test_the_command_prints_lines_with_repairs_and_one_verdict(
    capsys: pytest.CaptureFixture[str], listener: socket.socket
) -> None:
    port = listener.getsockname()[1]
    status = main(["doctor", f"tcp://127.0.0.1:{port}", "--connect", "--listen", f"tcp://127.0.0.1:{port}"])
    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert any(line.startswith("PASS  reachable") for line in lines)
    at = next(index for index, line in enumerate(lines) if line.startswith("FAIL  listen-port"))
    assert f"repair: ss -ltnp 'sport = :{port}'" in lines[at + 1]
    assert lines[-1].startswith("ofl doctor on ")
    assert lines[-1].endswith("something must be repaired")


def test_the_report_of_one_host_is_compared_on_another(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["doctor", "--json"])
    text = capsys.readouterr().out
    document = json.loads(text)
    assert document["format"] == 1
    assert {one["check"] for one in document["findings"]} == {check.name for check in HOST_CHECKS}
    path = tmp_path / "peer.json"
    path.write_text(text)
    main(["doctor", "--json", "--peer", str(path)])
    findings = {one["check"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    for name in ("peer-versions", "peer-contracts", "peer-library"):
        assert findings[name]["result"] == "PASS"
        assert findings[name]["peer"] == document["facts"]["host"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--connect"], "--connect needs an ENDPOINT"),
        (["--huge-pages"], "--huge-pages needs --tables-mib"),
        (["tcp://nowhere"], "the port is missing"),
        (["--listen", "quic://a:1"], "scheme 'quic' is unknown"),
        (["--peer", "/nowhere/peer.json"], "--peer: /nowhere/peer.json cannot be read"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert words in line


@pytest.mark.parametrize(("name", "checks"), [("host checks", HOST_CHECKS), ("peer checks", PEER_CHECKS)])
def test_the_page_has_the_table_of_all_checks(name: str, checks: tuple[Any, ...]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    part = text.partition(f"<!-- begin {name} -->\n")[2].partition(f"<!-- end {name} -->")[0]
    assert part == table(checks)
