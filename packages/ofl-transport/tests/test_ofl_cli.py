"""The `ofl` command: what it prints, and its exit status."""

import argparse
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ofl import cli, native
from ofl.cli import main
from ofl.commands.bench import with_default_command
from ofl.echo import Latency
from transport_harness import Harness
from transport_times import soon


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ofl", *arguments], capture_output=True, text=True, timeout=30, check=False
    )


def test_probe_shows_library_capabilities_interfaces_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["library"] == str(native.library_path())
    assert report["abi_version"] == native.ABI_VERSION
    for scheme in ("tcp", "shm"):
        assert report["features"][scheme] == {"ok": True, "missing": ""}
        assert report["capabilities"][scheme]["parts_max"] == native.PARTS_MAX
        assert report["capabilities"][scheme]["one_sided"] == 0
    loopback = next(item for item in report["interfaces"] if "127.0.0.1" in item["addresses"])
    assert loopback["mtu"] > 0
    assert report["limits"]["nofile"] > 0


def test_probe_says_why_rdma_is_not_there_or_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    rdma = report["features"]["rdma"]
    assert rdma["ok"] == ("rdma" in report["capabilities"])
    assert rdma["ok"] == (rdma["missing"] == "")
    if not list(Path("/sys/class").glob("infiniband/*")):
        sentences = r"this build has no RDMA: |RDMA needs libibverbs |this host has no RDMA device "
        assert re.match(sentences, rdma["missing"]), "the kernel shows no device"
    assert main(["probe"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("rdma: ")]
    assert line.startswith("rdma: yes") if rdma["ok"] else line == f"rdma: no: {rdma['missing']}"
    assert not any("ulimit" in line for line in lines), "the hint belongs to an rdma endpoint"


def test_probe_needs_no_route_to_a_name_on_this_host(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    server, endpoint = harness.echo(f"shm://probe-{os.getpid()}")
    assert main(["probe", endpoint, "--connect", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["route"]["ok"] is True
    assert "rtt_us" not in report["connect"]
    assert report["connect"]["wire"].startswith("shm")
    server.close()
    assert main(["probe", endpoint, "--connect"]) == 1


def test_probe_of_an_rdma_endpoint_says_what_would_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["probe", "rdma://127.0.0.1:9", "--json"])
    route = json.loads(capsys.readouterr().out)["route"]
    assert status == (0 if route["ok"] else 1)
    assert route["rdma"] == native.rdma_choice("127.0.0.1")[1] != ""


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
        (["echo", "ping", "rdma://10.0.0.1"], "port is missing"),
        (["echo", "ping", "shm://a/b"], "name 'a/b'"),
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
    process = subprocess.Popen(
        [sys.executable, "-m", "ofl", "echo", "serve", "tcp://127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        endpoint = process.stdout.readline().split()[-1]
        assert harness.client(endpoint).call([b"x"], deadline_ns=soon()) == b"x"
        process.send_signal(number)
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_both_ends_of_an_echo_prove_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, other = str(tmp_path / "ours"), str(tmp_path / "other")
    assert main(["keygen", ours]) == 0
    assert main(["keygen", other]) == 0
    assert stat.S_IMODE(os.stat(ours).st_mode) == 0o600
    assert main(["keygen", ours]) == 1
    assert ours in capsys.readouterr().err
    with subprocess.Popen(
        [sys.executable, "-m", "ofl", "echo", "serve", "tcp://127.0.0.1:0", "--key-file", ours],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            endpoint = process.stdout.readline().split()[-1]
            assert main(["echo", "ping", endpoint, "--count", "1", "--key-file", ours]) == 0
            assert main(["probe", endpoint, "--connect", "--json", "--key-file", ours]) == 0
            shown = capsys.readouterr().out
            assert '"authenticated": true' in shown
            assert main(["echo", "ping", endpoint, "--count", "1", "--key-file", other]) == 1
            assert main(["echo", "ping", endpoint, "--count", "1"]) == 1
        finally:
            process.kill()


def test_an_echo_server_lets_in_only_whom_it_was_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "ofl", "echo", "serve", "tcp://127.0.0.1:0", "--allow", "127.0.0.8/29"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            endpoint = process.stdout.readline().split()[-1]
            assert main(["echo", "ping", f"{endpoint}?bind=127.0.0.9", "--count", "1"]) == 0
            assert main(["echo", "ping", f"{endpoint}?bind=127.0.0.5", "--count", "1"]) == 1
        finally:
            process.kill()
    assert capsys.readouterr().err.count("\n") == 1


def test_a_prefix_that_is_none_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["echo", "serve", "tcp://127.0.0.1:0", "--allow", "10.0.0.0/64"]) == 1
    assert "10.0.0.0/64" in capsys.readouterr().err


USAGES = {
    (): ("usage: ofl [-h] [--version] COMMAND ...", "probe"),
    ("probe",): ("usage: ofl probe [-h] [", "probe tcp://a:1 --connect"),
    ("doctor",): ("usage: ofl doctor [-h] [", "doctor --listen tcp://192.0.2.1:18620 --peer other.json"),
    ("keygen",): ("usage: ofl keygen [-h] FILE", "keygen there"),
    ("echo",): ("usage: ofl echo [-h] COMMAND ...", "echo ping tcp://a:1"),
    ("echo", "serve"): ("usage: ofl echo serve [-h] [", "echo serve --allow ::1 tcp://a:1 shm://b"),
    ("echo", "ping"): ("usage: ofl echo ping [-h] [", "echo ping --count 3 tcp://a:1"),
    ("bench",): (
        "usage: ofl bench [run] TARGET [options], or ofl bench serve ENDPOINT [ENDPOINT ...] [options]",
        "bench tcp --sizes 64 75000 --only echo placed",
    ),
    ("bench", "run"): ("usage: ofl bench [run] TARGET [options]", "bench run tcp --sizes 64"),
    ("bench", "serve"): ("usage: ofl bench serve [-h] [", "bench serve --spin-us 0 tcp://a:1 shm://b"),
}


@pytest.mark.parametrize("words", USAGES, ids=" ".join)
def test_a_usage_line_names_its_own_command_and_what_it_shows_is_taken(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    begins, example = USAGES[words]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(begins)
    cli._parser().parse_args(with_default_command(example.split()))


def test_every_command_has_its_usage_looked_at() -> None:
    def below(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, part in action.choices.items():
                    yield from below(part, (*words, name))

    assert set(below(cli._parser(), ())) == set(USAGES)
