"""A peer that is frozen, killed, or breaks the rules is a typed error in time; one that is busy is not."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from ofl.errors import DeadlineError, PeerLostError
from ofl.interface import Connected, Disconnected, Request
from transport_harness import (
    CLOSE_TYPE,
    FAST,
    HEADER,
    HEARTBEAT_TYPE,
    REPLY_TYPE,
    Elapsed,
    Harness,
    accept_frame,
    connect_frame,
    eventually,
    frame,
    in_tenths,
    read_frame,
    soon,
)


@pytest.fixture
def scripted(harness: Harness) -> Iterator[tuple[str, list[bytes], list[threading.Thread]]]:
    """A server that accepts, waits for one request, sends the scripted bytes and closes."""
    listener, endpoint = harness.listener()
    script: list[bytes] = []
    threads: list[threading.Thread] = []

    def play() -> None:
        connection, _ = listener.accept()
        with connection:
            read_frame(connection)
            connection.sendall(accept_frame())
            read_frame(connection)
            connection.sendall(b"".join(script))

    threads.append(threading.Thread(target=play))
    threads[0].start()
    yield endpoint, script, threads
    threads[0].join(5)


@pytest.mark.parametrize(
    "cut", [0, 5, HEADER.size, HEADER.size + 50], ids=["none", "half header", "header", "half"]
)
def test_a_server_that_dies_within_a_reply_is_lost_at_once(
    harness: Harness, scripted: tuple[str, list[bytes], list[threading.Thread]], cut: int
) -> None:
    endpoint, script, _ = scripted
    script.append(frame(REPLY_TYPE, sequence=1, body=b"r" * 100)[:cut])
    client = harness.client(endpoint)
    with Elapsed() as elapsed, pytest.raises(PeerLostError, match="closed the connection without a word"):
        client.call([b"x"], deadline_ns=soon())
    assert elapsed.seconds < 1
    assert not client.alive


def test_a_reply_that_came_before_the_end_still_counts(
    harness: Harness, scripted: tuple[str, list[bytes], list[threading.Thread]]
) -> None:
    endpoint, script, _ = scripted
    script.append(frame(REPLY_TYPE, sequence=1, body=b"r" * 100) + frame(CLOSE_TYPE, body=b"maintenance"))
    client = harness.client(endpoint)
    assert client.call([b"x"], deadline_ns=soon()) == b"r" * 100
    eventually(lambda: not client.alive, "the keeper sees the end")
    with pytest.raises(PeerLostError, match="maintenance"):
        client.submit([b"y"], deadline_ns=soon())


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (frame(REPLY_TYPE, sequence=99, body=b"?"), "never used"),
        (frame(REPLY_TYPE, sequence=1) * 2, "answered already"),
        (frame(REPLY_TYPE, sequence=1, magic=b"HTTP"), "magic"),
        (frame(REPLY_TYPE, sequence=1, version=9), "header_version"),
        (frame(4, sequence=1), "type"),
        (HEADER.pack(b"OFL1", 1, REPLY_TYPE, 0, 1, (1 << 20) + 1, 0), "body_bytes is over"),
    ],
)
def test_a_reply_that_breaks_the_rules_ends_the_connection_by_name(
    harness: Harness, scripted: tuple[str, list[bytes], list[threading.Thread]], broken: bytes, clause: str
) -> None:
    endpoint, script, _ = scripted
    script.append(broken)
    client = harness.client(endpoint)
    sequence = client.submit([b"x"], deadline_ns=soon())
    eventually(lambda: not client.alive, "the connection is lost")
    with pytest.raises(PeerLostError, match=clause):
        client.submit([b"y"], deadline_ns=soon())
    client.cancel(sequence)


def test_a_killed_server_is_lost_at_once_while_waiting(harness: Harness) -> None:
    process, endpoint = harness.echo_process()
    client = harness.client(endpoint)
    assert client.call([b"x"], deadline_ns=soon()) == b"x"
    os.kill(process.pid, signal.SIGSTOP)
    sequence = client.submit([b"never answered"], deadline_ns=soon())
    threading.Timer(0.1, process.kill).start()
    with Elapsed() as elapsed, pytest.raises(PeerLostError):
        client.wait(sequence, deadline_ns=soon())
    assert elapsed.seconds < 1


def test_a_killed_server_is_noticed_while_idle(harness: Harness) -> None:
    process, endpoint = harness.echo_process()
    client = harness.client(endpoint)
    assert client.alive
    process.kill()
    eventually(lambda: not client.alive, "alive turns False", seconds=2)


def test_a_frozen_server_is_lost_after_the_loss_limit_while_waiting(harness: Harness) -> None:
    process, endpoint = harness.echo_process()
    client = harness.client(endpoint, **FAST)
    os.kill(process.pid, signal.SIGSTOP)
    with (
        Elapsed() as elapsed,
        pytest.raises(PeerLostError, match=r"no sign of life from the peer for 0\.5 s"),
    ):
        client.call([b"x"], deadline_ns=soon())
    assert elapsed.seconds < 2


def test_a_frozen_server_is_noticed_while_idle(harness: Harness) -> None:
    process, endpoint = harness.echo_process()
    client = harness.client(endpoint, **FAST)
    os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: not client.alive, "alive turns False", seconds=2)


def test_a_frozen_server_meets_the_deadline_first_if_that_is_nearer(harness: Harness) -> None:
    process, endpoint = harness.echo_process()
    client = harness.client(endpoint)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(DeadlineError):
        client.call([b"x"], deadline_ns=in_tenths(1))
    os.kill(process.pid, signal.SIGCONT)
    assert client.call([b"y"], deadline_ns=soon()) == b"y"


def test_sending_to_a_frozen_server_ends_at_the_deadline(harness: Harness) -> None:
    process, endpoint = harness.echo_process()
    client = harness.client(endpoint, max_frame_bytes=1 << 25)
    os.kill(process.pid, signal.SIGSTOP)
    with Elapsed() as elapsed, pytest.raises(DeadlineError):
        client.submit([bytes(1 << 25)], deadline_ns=in_tenths(3))
    assert elapsed.seconds < 1
    assert not client.alive  # half a frame cannot be taken back


def test_an_idle_connection_lives_far_beyond_the_loss_limit(harness: Harness) -> None:
    server, endpoint = harness.echo()
    client = harness.client(endpoint, **FAST)
    time.sleep(1.5)  # three times the limit, with nothing to say
    assert client.call([b"still here"], deadline_ns=soon()) == b"still here"
    assert server.counters()["disconnects"] == 0


def test_a_server_whose_consumer_is_busy_keeps_its_connections(harness: Harness) -> None:
    server = harness.server()
    client = harness.client(server.listen("tcp://127.0.0.1:0"), **FAST)
    server.next_event(deadline_ns=soon())
    sequence = client.submit([b"x"], deadline_ns=soon())
    end = time.monotonic() + 1.5
    while time.monotonic() < end:  # computes, and holds the interpreter lock most of the time
        sum(range(1000))
    request = server.next_event(deadline_ns=soon())
    assert isinstance(request, Request)
    assert server.reply(request.connection, request.sequence, [b"late"])
    assert client.wait(sequence, deadline_ns=soon()) == b"late"


def test_a_frozen_client_is_dropped_by_the_server(harness: Harness) -> None:
    server = harness.server()
    endpoint = server.listen("tcp://127.0.0.1:0")
    connection = harness.raw(endpoint)
    # It negotiates and then says nothing, not even heartbeats.
    connection.sendall(connect_frame(heartbeat_ms=20, loss_ms=200))
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    with Elapsed() as elapsed:
        gone = server.next_event(deadline_ns=soon())
    assert isinstance(gone, Disconnected)
    assert "no sign of life" in gone.reason
    assert 0.15 < elapsed.seconds < 1
    assert server.counters()["lost"] == 1


STOPPABLE_CLIENT = """
import sys, time
from ofl.client import connect
now = time.monotonic_ns()
options = dict(service="ofl-echo", version_min=1, version_max=1, max_frame_bytes=1 << 20)
client = connect(sys.argv[1], **options, deadline_ns=now + 10**10, heartbeat_ns=10**8, loss_ns=10**9)
print("connected", flush=True)
sys.stdin.readline()
print(client.alive, flush=True)
"""


def test_being_stopped_ourselves_is_no_loss_of_the_peer(harness: Harness) -> None:
    listener, endpoint = harness.listener()
    command = [sys.executable, "-c", STOPPABLE_CLIENT, endpoint]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        connection, _ = listener.accept()
        with connection:
            read_frame(connection)
            connection.sendall(accept_frame())
            assert process.stdout.readline() == "connected\n"
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(1.5)  # beyond its limit of 1 s, and not a byte from us
            os.kill(process.pid, signal.SIGCONT)
            for _ in range(10):
                time.sleep(0.05)
                connection.sendall(frame(HEARTBEAT_TYPE))
            process.stdin.write("report\n")
            process.stdin.flush()
            assert process.stdout.readline() == "True\n"
