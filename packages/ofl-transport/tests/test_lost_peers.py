"""Peers that a plain socket plays over TCP, byte by byte: broken ones and silent ones.

Processes that die are in behaviour/, for every wire.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from ofl.client import Client
from ofl.errors import PeerLostError
from ofl.interface import Connected, Disconnected
from ofl.memory import Buffer
from transport_frames import (
    CLOSE_TYPE,
    HEADER,
    HEADER_VERSION,
    HEARTBEAT_TYPE,
    REPLY_TYPE,
    accept_frame,
    connect_frame,
    frame,
    read_frame,
)
from transport_harness import Harness
from transport_times import FAST, Elapsed, eventually, joined, scaled, soon, span_ns


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
    joined(threads[0])


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
    assert elapsed.seconds < scaled(1)
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
        (HEADER.pack(b"OFL1", HEADER_VERSION, REPLY_TYPE, 0, 1, (1 << 20) + 1, 0), "body_bytes is over"),
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


def test_a_reply_over_its_range_ends_the_connection_and_touches_nothing(
    harness: Harness, scripted: tuple[str, list[bytes], list[threading.Thread]]
) -> None:
    endpoint, script, _ = scripted
    script.append(frame(REPLY_TYPE, sequence=1, body=b"r" * 101))
    client = harness.client(endpoint)
    buffer = Buffer(1000)
    client.register(buffer)
    sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range(100, 100))
    with pytest.raises(PeerLostError, match="over the room of its placement"):
        client.wait(sequence, deadline_ns=soon())
    assert not any(buffer.view)


def test_a_frozen_client_is_dropped_by_the_server(harness: Harness) -> None:
    server, endpoint = harness.listening()
    connection = harness.raw(endpoint)
    # It negotiates and then says nothing, not even heartbeats.
    connection.sendall(connect_frame(heartbeat_ms=20, loss_ms=200))
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    with Elapsed() as elapsed:
        gone = server.next_event(deadline_ns=soon())
    assert isinstance(gone, Disconnected)
    assert "no sign of life" in gone.reason
    assert 0.15 < elapsed.seconds < scaled(1)
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


def accepted(harness: Harness, heartbeat_s: float, loss_s: float) -> tuple[Client, socket.socket]:
    """A client of a silent server, and that server's socket."""
    return harness.accepted(accept_frame(), heartbeat_ns=span_ns(heartbeat_s), loss_ns=span_ns(loss_s))


@pytest.mark.parametrize("heartbeats", [2.0, 2.1, 3.0, 20.0])
def test_a_silent_server_is_lost_while_idle_whatever_part_of_the_limit_a_heartbeat_is(
    harness: Harness, heartbeats: float
) -> None:
    with Elapsed() as elapsed:
        client, _ = accepted(harness, 0.6 / heartbeats, 0.6)
        eventually(lambda: not client.alive, "the silence is noticed", seconds=6)
    assert client.reason == f"no sign of life from the peer for {round(scaled(600))} ms"
    assert elapsed.seconds > scaled(0.6)


def test_the_end_of_an_idle_connection_is_seen_at_once_behind_what_came_before_it(harness: Harness) -> None:
    client, server = accepted(harness, 10.0, 60.0)
    server.sendall(frame(HEARTBEAT_TYPE))
    server.shutdown(socket.SHUT_WR)
    eventually(lambda: not client.alive, "long before the next heartbeat", seconds=4)
    assert client.reason == "the peer closed the connection without a word"


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
            time.sleep(scaled(1.5))  # beyond its limit of 1 s, and not a byte from us
            os.kill(process.pid, signal.SIGCONT)
            for _ in range(10):
                time.sleep(0.05)
                connection.sendall(frame(HEARTBEAT_TYPE))
            process.stdin.write("report\n")
            process.stdin.flush()
            assert process.stdout.readline() == "True\n"


def test_both_ends_of_a_connection_that_is_cut_lose_each_other_in_time(harness: Harness) -> None:
    """Nothing gets through any more and nothing says so, as when a cable is pulled."""
    server, endpoint = harness.listening()
    listener, between = harness.listener()
    cut = threading.Event()

    def relay() -> None:
        client, _ = listener.accept()
        with client, harness.raw(endpoint) as behind:
            ways = {client: behind, behind: client}
            while not cut.is_set():
                ready, _, _ = select.select(list(ways), [], [], 0.01)
                for source in ready:
                    ways[source].sendall(source.recv(65536))
            ended.wait(scaled(20))

    ended = threading.Event()
    thread = threading.Thread(target=relay)
    thread.start()
    client = harness.client(between, **FAST)
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    cut.set()
    with Elapsed() as elapsed:
        eventually(lambda: not client.alive, "the client gives the server up")
        gone = server.next_event(deadline_ns=soon())
    ended.set()
    thread.join()
    assert isinstance(gone, Disconnected)
    assert "no sign of life" in gone.reason
    with pytest.raises(PeerLostError, match="no sign of life"):
        client.submit([b"x"], deadline_ns=soon())
    assert elapsed.seconds < scaled(2.5)
