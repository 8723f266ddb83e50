"""`ofl bench` for real: figures that add up, a server that ends, and a broken transfer that is never a fast one."""

import errno
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from ofl.bench import MAX_FRAME_BYTES, SERVICE
from ofl.bench.figures import Case, Mode
from ofl.bench.measure import Meter, Target
from ofl.bench.own_server import own_server
from ofl.cli import main
from ofl.commands.bench import with_default_command
from ofl.errors import DeadlineError, PeerLostError, TransportError
from ofl.interface import Connected, Request
from ofl.server import Server
from transport_harness import Harness, eventually, soon

SECOND = 1_000_000_000
REQUEST = struct.Struct("<IIQ")  # mode, stamp, bytes of the reply
ECHO, TO_SERVER, TO_CLIENT, CPU_TIME = range(1, 5)
SIZES = [1, 7, 8, 9, 15, 16, 17, 64, 4096, 75_000, 3_000_001]


@contextmanager
def meter(endpoint: str, timeout_ns: int = 20 * SECOND) -> Iterator[Meter]:
    with Meter(Target(endpoint, spin_us=50, timeout_ns=timeout_ns)) as made:
        yield made


@pytest.fixture(params=["tcp://127.0.0.1:0", f"shm://test-bench-{os.getpid()}"], ids=["tcp", "shm"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """A bench server in a process of its own."""
    with own_server(request.param, spin_us=50, key_file=None) as bound:
        yield bound


def test_every_case_of_every_size_comes_back_right(endpoint: str) -> None:
    with meter(endpoint) as measured:
        for size in [0, *SIZES]:
            for mode, placed in (
                (Mode.ECHO, False),
                (Mode.TO_SERVER, False),
                (Mode.TO_CLIENT, False),
                (Mode.TO_CLIENT, True),
            ):
                if size == 0 and mode is not Mode.ECHO:
                    continue
                result = measured.measure(Case(mode, size, placed), 0.01)
                latency = result.latency
                assert latency.count >= 5
                assert 0 < latency.min_ns <= latency.p50_ns <= latency.p99_ns <= latency.max_ns
                assert latency.max_ns <= result.elapsed_ns


def test_the_processors_time_of_both_processes_is_told_apart(endpoint: str) -> None:
    with meter(endpoint) as measured:
        result = measured.measure(Case(Mode.ECHO, 4096), 0.3)
    wall_s = result.elapsed_ns / 1e9
    # Both ends look for 50 us before they sleep, and have one thread that works and one that keeps watch.
    assert 0 < result.client_cpu_s < 2.5 * wall_s
    assert 0 < result.server_cpu_s < 2.5 * wall_s


def test_the_first_call_after_silence_is_measured_so_often(endpoint: str) -> None:
    with meter(endpoint) as measured:
        latency = measured.first_after_idle(Case(Mode.ECHO, 64), 0.02, 3)
    assert latency.count == 3
    assert latency.max_ns < 20 * SECOND


# --- servers that get it wrong ---


@contextmanager
def playing(
    harness: Harness, reply: Callable[[Request, int, int, int], bytes]
) -> Iterator[tuple[Server, str]]:
    """A server of the service whose replies the test makes, from mode, stamp and wanted bytes."""
    server = harness.server(SERVICE, max_frame_bytes=MAX_FRAME_BYTES)
    endpoint = server.listen("tcp://127.0.0.1:0")
    stop = threading.Event()

    def play() -> None:
        while not stop.is_set():
            event = server.next_event(deadline_ns=soon())
            if isinstance(event, Request):
                server.reply(
                    event.connection, event.sequence, [reply(event, *REQUEST.unpack(event.body[:16]))]
                )

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield server, endpoint
    finally:
        stop.set()
        server.wake()
        thread.join(10)
        assert not thread.is_alive()


def spread(number: int) -> int:
    """The word that marks a body, and the words of the server's text: multiples of an odd number."""
    return (number + 1) * 0x9E3779B97F4A7C15 % 2**64


def text(shift: int, size: int) -> bytes:
    """The server's endless text from a place on, made another way than the library makes it."""
    first, last = shift // 8, (shift + size) // 8 + 1
    words = b"".join(spread(number).to_bytes(8, "little") for number in range(first, last + 1))
    return words[shift % 8 : shift % 8 + size]


def right_reply(request: Request, mode: int, stamp: int, size: int) -> bytes:
    if mode == ECHO:
        return bytes(request.body[16:])
    if mode == TO_CLIENT:
        return text(stamp % 64 * 64, size)
    return bytes(8) if mode == CPU_TIME else b""


@pytest.mark.parametrize("size", [1, 7, 9, 15, 17, 4097])
@pytest.mark.parametrize("mode", [Mode.ECHO, Mode.TO_SERVER, Mode.TO_CLIENT])
def test_a_server_made_from_the_description_alone_is_right(harness: Harness, mode: Mode, size: int) -> None:
    with playing(harness, right_reply) as (_, endpoint), meter(endpoint) as measured:
        assert measured.measure(Case(mode, size), 0.01).latency.count >= 5


def first_word(body: bytearray) -> None:
    body[0] ^= 1


def last_word(body: bytearray) -> None:
    body[-1] ^= 0x80


def shorter(body: bytearray) -> None:
    del body[-1]


@pytest.mark.parametrize("spoil", [first_word, last_word, shorter])
@pytest.mark.parametrize("size", [1, 8, 15, 16, 4096])
@pytest.mark.parametrize(
    ("mode", "placed"), [(Mode.ECHO, False), (Mode.TO_CLIENT, False), (Mode.TO_CLIENT, True)]
)
def test_a_reply_that_is_wrong_at_an_end_is_no_result(
    harness: Harness, mode: Mode, placed: bool, size: int, spoil: Callable[[bytearray], None]
) -> None:
    def reply(request: Request, *fields: int) -> bytes:
        body = bytearray(right_reply(request, *fields))
        if fields[0] == mode and fields[1] == 3:  # the third transfer
            spoil(body)
        return bytes(body)

    with (
        playing(harness, reply) as (_, endpoint),
        meter(endpoint) as measured,
        pytest.raises(TransportError, match="not what was asked for at its first or last word"),
    ):
        measured.measure(Case(mode, size, placed), 0.01)


@pytest.mark.parametrize("placed", [False, True])
def test_the_reply_to_another_transfer_is_no_result(harness: Harness, placed: bool) -> None:
    def reply(request: Request, mode: int, stamp: int, size: int) -> bytes:
        return right_reply(request, mode, 1 if mode == TO_CLIENT else stamp, size)

    with (
        playing(harness, reply) as (_, endpoint),
        meter(endpoint) as measured,
        pytest.raises(TransportError, match="first or last word"),
    ):
        measured.measure(Case(Mode.TO_CLIENT, 4096, placed), 0.01)


@pytest.mark.parametrize(
    ("header", "payload", "reason"),
    [
        ((TO_SERVER, 5, 0), b"not what the stamp says", "the ends of a request's body"),
        ((TO_CLIENT, 5, MAX_FRAME_BYTES + 1), b"", "reply_bytes is over the limit"),
        ((9, 5, 0), b"", "mode of a request is unknown"),
        (None, b"short", "shorter than its header"),
    ],
)
def test_a_request_that_breaks_the_service_ends_its_connection_with_the_reason(
    endpoint: str, header: tuple[int, int, int] | None, payload: bytes, reason: str
) -> None:
    with meter(endpoint) as broken, meter(endpoint) as other:
        request = (REQUEST.pack(*header) if header else b"") + payload
        with pytest.raises(PeerLostError, match=reason):
            broken.client.call([request], deadline_ns=soon())
        assert other.measure(Case(Mode.ECHO, 8), 0.01).latency.count >= 5


def test_a_server_that_goes_silent_is_met_by_the_timeout_and_leaves_no_call_open(harness: Harness) -> None:
    server, endpoint = harness.listening(SERVICE, max_frame_bytes=MAX_FRAME_BYTES)
    with meter(endpoint, timeout_ns=SECOND // 5) as measured:
        with pytest.raises(DeadlineError, match=r"no reply within 0\.2 s"):
            measured.measure(Case(Mode.TO_CLIENT, 4096, placed=True), 0.01)
        window = Case(Mode.TO_CLIENT, 4096, placed=True).window
        eventually(lambda: server.counters()["cancels"] == window, "every open transfer is cancelled")
        assert isinstance(server.next_event(deadline_ns=soon()), Connected)
        assert server.next_event(deadline_ns=0) is None


def test_a_server_that_hangs_up_while_it_is_measured_is_an_error(harness: Harness) -> None:
    servers: list[Server] = []

    def reply(request: Request, mode: int, stamp: int, size: int) -> bytes:
        if stamp == 3:
            servers[0].disconnect(request.connection, "as the test asks")
        return right_reply(request, mode, stamp, size)

    with playing(harness, reply) as (server, endpoint):
        servers.append(server)
        with meter(endpoint) as measured, pytest.raises(PeerLostError, match="as the test asks"):
            measured.measure(Case(Mode.ECHO, 8), 0.01)


# --- the command ---


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
    # Echoes of two sizes, 64 bytes in each of three ways, looking and sleeping.
    assert len(report["results"]) == 2 * (2 + 3)
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
    assert [line.split("  ")[0] for line in lines[2:6]] == [
        "echo",
        "to server",
        "to client",
        "to client, placed",
    ]
    assert lines[6].startswith("first call after 0.01 s of silence")
    assert len(lines) == 7


def test_a_running_server_is_measured_with_a_key_and_ends_on_a_signal(tmp_path: object) -> None:
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
