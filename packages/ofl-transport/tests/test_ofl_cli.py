"""The `ofl` command: what it prints, and its exit status."""

import json
import signal
import socket
import subprocess
import sys

import pytest
from ofl import native
from ofl.cli import main
from ofl.echo import Latency
from transport_harness import Harness, soon


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ofl", *arguments], capture_output=True, text=True, timeout=30, check=False
    )


def test_probe_shows_library_capabilities_interfaces_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["library"] == str(native.library_path())
    assert report["capabilities"]["abi_version"] == native.ABI_VERSION
    assert report["capabilities"]["parts_max"] == native.PARTS_MAX
    assert report["schemes"] == {"tcp": True, "rdma": False, "shm": False}
    loopback = next(item for item in report["interfaces"] if "127.0.0.1" in item["addresses"])
    assert loopback["mtu"] > 0
    assert report["limits"]["nofile"] > 0


def test_probe_says_which_address_would_be_used_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "tcp://127.0.0.1:9"]) == 0
    assert "from 127.0.0.1" in (out := capsys.readouterr().out)
    assert "route" in out
    assert main(["probe", "tcp://127.0.0.1:9?bind=127.0.0.5"]) == 0
    assert "asked for by bind" in capsys.readouterr().out


def test_probe_connects_and_measures(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    server, endpoint = harness.echo()
    assert main(["probe", endpoint, "--connect", "--json"]) == 0
    attempt = json.loads(capsys.readouterr().out)["connect"]
    assert attempt["ok"] is True
    assert 0 < attempt["rtt_us"] < 5e6
    assert len(attempt["boot_nonce"]) == 16
    server.close()
    assert main(["probe", endpoint, "--connect"]) == 1
    assert "connect: failed" in capsys.readouterr().out


def test_probe_shows_a_refusal_in_the_servers_words(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    server = harness.server("dspark")
    endpoint = server.listen("tcp://127.0.0.1:0")
    assert main(["probe", endpoint, "--connect"]) == 1
    assert "offers service 'dspark'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["probe", "tcp://nowhere"], "port is missing"),
        (["probe", "--connect"], "needs an ENDPOINT"),
        (["echo", "ping", "rdma://10.0.0.1:1"], "not built yet"),
        (["echo", "serve", "tcp://0.0.0.0:0"], "every interface"),
    ],
)
def test_wrong_use_is_one_sentence_and_status_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [[], ["echo"], ["no-such"], ["echo", "ping", "tcp://h:1", "--count", "0"]]
)
def test_a_wrong_command_line_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_busy_port_is_status_1_and_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("echo", "serve", f"tcp://127.0.0.1:{port}")
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is in use" in done.stderr
    assert done.stderr.count("\n") == 1


def test_ping_prints_a_table_and_json(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    _, endpoint = harness.echo(max_frame_bytes=1 << 26)
    assert main(["echo", "ping", endpoint, "--count", "20", "--size", "5000"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["bytes", "count", "p50", "us", "p90", "us", "p99", "us", "max", "us"]
    assert row.split()[:2] == ["5000", "20"]
    assert main(["echo", "ping", endpoint, "--count", "20", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    trip = report["round_trip_us"]
    assert 0 < trip["p50"] <= trip["p90"] <= trip["p99"] <= trip["max"]


def test_percentiles_are_nearest_rank() -> None:
    assert Latency.of(range(1, 101)) == Latency(count=100, p50_ns=50, p90_ns=90, p99_ns=99, max_ns=100)
    assert Latency.of([7]) == Latency(count=1, p50_ns=7, p90_ns=7, p99_ns=7, max_ns=7)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_echo_server_stops_on_a_signal(harness: Harness, number: signal.Signals) -> None:
    process, endpoint = harness.echo_process()
    assert harness.client(endpoint).call([b"x"], deadline_ns=soon()) == b"x"
    process.send_signal(number)
    assert process.wait(5) == 0
