"""The command `ofl bench`: what it measures, what it prints, and that nothing of it stays behind."""

import errno
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from ofl import native
from ofl.bench import SERVICE, figures, peers
from ofl.cli import main
from ofl.commands.bench import with_default_command
from transport_frames import ACCEPT_TYPE, REQUEST_TYPE, connect_frame, frame, read_frame
from transport_harness import eventually
from transport_sockets import is_stuck
from transport_times import scaled


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ofl", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_word_run_may_be_left_out() -> None:
    assert with_default_command(["bench", "tcp", "--json"]) == ["bench", "run", "tcp", "--json"]
    for whole in (
        ["bench", "run", "tcp"],
        ["bench", "serve", "tcp://h:1"],
        ["bench"],
        ["bench", "-h"],
        ["probe", "tcp"],
    ):
        assert with_default_command(whole) == whole


@pytest.mark.parametrize("target", ["tcp", "shm", "tcp://127.0.0.5:0"])
def test_a_scheme_or_port_0_is_measured_against_a_server_of_its_own(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--sizes", "0", "64", "--seconds", "0.01", "--idle-s", "0.01", "--json"]
    assert main(["bench", target, *words]) == 0
    report = json.loads(capsys.readouterr().out)
    # Echoes of two sizes, 64 bytes in each of four ways, looking and sleeping.
    assert len(report["results"]) == 2 * (2 + 4)
    assert {row["spin_us"] for row in report["results"]} == {50, 0}
    assert [row["count"] for row in report["first_after_idle"]] == [5, 5]
    assert report["wire"].startswith(target[:3])
    for row in report["results"]:
        assert row["us"].keys() == {"min", "p50", "p90", "p99", "p999", "max", "mean"}


def test_a_part_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--sizes", "64", "--seconds", "0.01", "--idle-s", "0", "--spin-us", "0", "--json"]
    assert main(["bench", "tcp", *words, "--only", "placed", "to-server"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["case"] for row in report["results"]] == ["to server", "to client, placed"]


def test_people_get_a_table_for_each_variant(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--sizes", "64", "--seconds", "0.01", "--idle-s", "0.01", "--spin-us", "7"]
    assert main(["bench", "tcp", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "over tcp, spin 7 us" in lines[0]
    assert "p99.9 us" in lines[1]
    assert [line.split("  ")[0] for line in lines[2:7]] == [
        "echo",
        "to server",
        "to server, lent",
        "to client",
        "to client, placed",
    ]
    assert lines[7].startswith("first call after 0.01 s of silence")
    assert len(lines) == 8


def test_a_running_server_is_measured_with_a_key_and_ends_on_a_signal(tmp_path: Path) -> None:
    key = f"{tmp_path}/key"
    assert main(["keygen", key]) == 0
    command = [sys.executable, "-m", "ofl", "bench", "serve", "tcp://127.0.0.1:0", "--key-file", key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            endpoint = process.stdout.readline().split()[-1]
            words = [
                endpoint,
                "--sizes",
                "64",
                "--seconds",
                "0.01",
                "--idle-s",
                "0",
                "--spin-us",
                "0",
                "--json",
            ]
            assert run(*words).returncode == 1
            done = run(*words, "--key-file", key)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["authenticated"] is True
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_its_own_server_does_not_outlive_it() -> None:
    code = (
        "import os, signal; from ofl.bench.own_server import own_server\n"
        "with own_server('tcp://127.0.0.1:0', spin_us=0, key_file=None) as bound:\n"
        "    print(bound, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    port = int(done.stdout.strip().rpartition(":")[2])

    def nobody_listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED

    eventually(nobody_listens, "the server ends with whom it served")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def sleeps(pid: int) -> int:
    """How often the threads of a process have gone to sleep."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in texts)


@pytest.mark.parametrize("scheme", ["tcp", "shm"])
def test_a_measurement_ends_with_ctrl_c_though_its_server_stands_still(scheme: str) -> None:
    endless = [
        "--sizes",
        "8",
        "--only",
        "echo",
        "--spin-us",
        "0",
        "--seconds",
        "600",
        "--timeout-ms",
        "600000",
    ]
    command = [sys.executable, "-m", "ofl", "bench", scheme, *endless]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: bool(children(process.pid)), "it starts its server")
            (server,) = children(process.pid)
            eventually(lambda: sleeps(server) > 2000, "the server answers, and sleeps between two requests")
            os.kill(server, signal.SIGSTOP)
            process.send_signal(signal.SIGINT)
            assert process.wait(scaled(10)) == 128 + signal.SIGINT
        finally:
            process.kill()
        assert process.communicate() == ("", "")
    assert not Path(f"/proc/{server}").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["udp"], 2, "target 'udp' is none of tcp, shm, rdma, and no endpoint"),
        (["tcp://127.0.0.1"], 2, "the port is missing"),
        (["tcp://127.0.0.1:9", "--compare"], 2, "--compare starts the servers of both sides"),
        (["tcp://192.0.2.1:0"], 1, "the bench server did not start"),
        (["shm://test-bench-nobody"], 1, "test-bench-nobody"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(
    arguments: list[str], status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == status
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--sizes", "64M"], ["--seconds", "nan"], ["--spin-us", "-1"], ["--rounds", "0"]]
)
def test_a_wrong_option_is_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench", "tcp", *words])
    assert stop.value.code == 2
    assert words[1] in capsys.readouterr().err


def test_a_missing_tool_is_said_by_name_and_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["bench", "tcp", "--compare", "--sizes", "64", "75000", "--json"]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["compared"] == []
    assert report["missing"] == [
        "qperf is not installed (Debian package qperf)",
        "sockperf is not installed (Debian package sockperf)",
    ]
    assert all(sentence in captured.err for sentence in report["missing"])


@pytest.mark.parametrize(
    ("scheme", "tool", "size"),
    [("tcp", "sockperf", "64"), ("tcp", "qperf", "75000"), ("shm", "ucx_perftest", "64")],
)
def test_the_tools_that_are_here_are_really_measured(
    scheme: str, tool: str, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    words = ["--sizes", size, "--spin-us", "0", "--rounds", "1", "--seconds", "0.05", "--json"]
    assert main(["bench", scheme, "--compare", *words]) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    assert report["failures"] == report["missing"] == []
    for row in report["compared"]:
        assert row["peer_tool"].startswith(tool)
        assert row["ratio"] == row["ofl"][0] / row["peer"][0] > 0


def test_perftest_measures_the_port_that_the_library_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "mlx5_1 port 2 GID 3 10.77.0.1 (RoCE v2 on bond0) is the GID of 10.77.0.1 (bond0), path MTU 4096"
    monkeypatch.setattr(native, "rdma_choice", lambda address: (address == "10.77.0.1", words))
    asked = []

    def comparisons(*given: object) -> list[peers.Comparison]:
        asked.append(given)
        return []

    monkeypatch.setattr(peers, "comparisons", comparisons)
    assert main(["bench", "rdma://10.77.0.1:0", "--compare"]) == 1  # nothing was compared
    assert [given[0] for given in asked] == ["rdma"]
    assert asked[0][-1] == peers.RdmaPort("mlx5_1", 2, 3)


def test_a_comparison_over_rdma_says_why_the_library_has_no_port(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "rdma_choice", lambda address: (False, f"no RDMA device carries {address}"))
    assert main(["bench", "rdma://10.77.0.1:0", "--compare"]) == 1
    assert "no RDMA device carries 10.77.0.1" in capsys.readouterr().err


def test_a_client_that_does_not_read_holds_up_no_server_that_is_to_end() -> None:
    command = [sys.executable, "-m", "ofl", "bench", "serve", "tcp://127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(connect_frame(SERVICE, loss_ms=120_000))
            assert read_frame(client)[0] == ACCEPT_TYPE
            for sequence in range(1, 33):  # 32 MiB, far more than two sockets hold
                wanted = struct.pack("<IIQ", figures.Mode.TO_CLIENT, sequence, 1 << 20)
                client.sendall(frame(REQUEST_TYPE, sequence=sequence, body=wanted))
            assert client.recv(1)
            eventually(lambda: is_stuck(port), "the sockets are full")
            server.send_signal(signal.SIGTERM)
            try:
                assert server.wait(scaled(20)) == 0
            finally:
                server.kill()
