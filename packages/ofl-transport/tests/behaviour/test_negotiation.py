"""Where a server negotiates, whatever comes in: it goes on serving, counts it, and holds nothing for it.

Every wire negotiates on a stream socket, so a plain socket can play a client up to the link frame.
"""

import contextlib
import os
import random
import socket
import struct
import time

import pytest
from ofl.interface import Connected, Disconnected
from transport_backends import only_on
from transport_frames import (
    ACCEPT_TYPE,
    CLOSE_TYPE,
    CONNECT_TYPE,
    HEARTBEAT_TYPE,
    LINK_TYPE,
    REFUSE_TYPE,
    REQUEST_TYPE,
    connect_frame,
    finish,
    frame,
    mutate,
    read_frame,
)
from transport_harness import Harness
from transport_times import eventually, scaled, soon, span_ns

REFUSE_FULL, REFUSE_TRANSPORT = 5, 7
LINK_BYTES = {"rdma": 40, "shm": 16}
DESCRIPTORS_OF_A_CONNECTION = 7
"""At most: its socket, its events, and what RDMA opens for a queue pair or shared memory for its rings."""


def refusal(connection: socket.socket) -> tuple[int, bytes]:
    """The code and the text of the refusal that comes next."""
    kind, _, body = read_frame(connection)
    assert kind == REFUSE_TYPE
    return struct.unpack_from("<I", body)[0], body[8:]


def test_a_thousand_garbage_connections_never_disturb_a_client(harness: Harness) -> None:
    server, endpoint = harness.echo()
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    with harness.busy_client(endpoint) as served:
        for _ in range(1000):
            connection = harness.raw(endpoint)
            with contextlib.suppress(ConnectionError), connection:
                connection.sendall(b"\xff" + chance.randbytes(chance.randrange(24, 300)))
                assert connection.recv(1) == b""
        eventually(lambda: served() > 50, "the client is served all the while")
    assert server.counters()["garbage"] == 1000
    assert server.counters()["disconnects"] <= 1  # the busy client's


def test_mutated_negotiations_never_disturb_a_client(harness: Harness) -> None:
    server, endpoint = harness.echo()
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    valid = connect_frame(transport=harness.backend.number)
    if harness.backend.name != "tcp":
        valid += frame(LINK_TYPE, body=bytes(LINK_BYTES[harness.backend.name]))
    with harness.busy_client(endpoint) as served:
        for _ in range(500):
            connection = harness.raw(endpoint)
            with contextlib.suppress(ConnectionError), connection:
                connection.sendall(mutate(valid, chance))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        eventually(lambda: served() > 50, "the client is served all the while")
    assert harness.client(endpoint).call([b"fine"], deadline_ns=soon()) == b"fine"
    assert server.counters()["garbage"] + server.counters()["refused"] > 50


def test_silent_connections_are_dropped_at_the_handshake_deadline(harness: Harness) -> None:
    server, endpoint = harness.echo(handshake_ns=span_ns(0.2))
    connections = [harness.raw(endpoint) for _ in range(20)]
    begun = time.monotonic()
    assert [finish(connection) for connection in connections] == [b""] * 20
    assert time.monotonic() - begun < scaled(1)
    assert server.counters()["handshake_timeouts"] == 20


def test_a_byte_at_a_time_does_not_extend_the_handshake(harness: Harness) -> None:
    server, endpoint = harness.echo(handshake_ns=span_ns(0.2))
    connection = harness.raw(endpoint)
    begun = time.monotonic()
    with contextlib.suppress(ConnectionError):
        for byte in connect_frame(transport=harness.backend.number)[:-1]:
            connection.sendall(bytes([byte]))
            time.sleep(scaled(0.005))
    assert finish(connection) == b""
    assert time.monotonic() - begun < scaled(1.5)
    assert server.counters()["handshake_timeouts"] == 1


@only_on(lambda backend: backend.name != "tcp")
def test_a_link_frame_that_never_comes_is_a_negotiation_that_never_ended(harness: Harness) -> None:
    server, endpoint = harness.echo(handshake_ns=span_ns(0.2))
    connection = harness.raw(endpoint, connect_frame(transport=harness.backend.number))
    assert read_frame(connection)[0] == ACCEPT_TYPE
    assert finish(connection) == b""
    counters = server.counters()
    assert (counters["handshake_timeouts"], counters["disconnects"]) == (1, counters["accepted"])


def test_a_flood_of_silent_connections_gives_way_to_a_client(harness: Harness) -> None:
    server, endpoint = harness.echo(max_pending=16, handshake_ns=span_ns(60))
    for _ in range(200):
        harness.raw(endpoint)
    assert harness.client(endpoint).call([b"through"], deadline_ns=soon()) == b"through"
    assert server.counters()["evicted"] >= 180


def test_another_header_version_is_answered_with_a_refusal(harness: Harness) -> None:
    _, endpoint = harness.echo()
    for version in (1, 3):
        connection = harness.raw(endpoint, frame(CONNECT_TYPE, body=bytes(128), version=version))
        assert b"wire header version 2 only" in refusal(connection)[1]


@pytest.mark.parametrize("kind", [ACCEPT_TYPE, HEARTBEAT_TYPE, CLOSE_TYPE, REQUEST_TYPE, LINK_TYPE])
def test_a_first_frame_that_is_no_offer_ends_the_connection(harness: Harness, kind: int) -> None:
    server, endpoint = harness.echo()
    sequence = 1 if kind == REQUEST_TYPE else 0
    size = {ACCEPT_TYPE: 56, LINK_TYPE: 16}.get(kind, 0)
    assert finish(harness.raw(endpoint, frame(kind, sequence=sequence, body=bytes(size)))) == b""
    assert server.counters()["garbage"] == 1


def test_a_listener_offers_its_own_transport_and_says_so_to_others(harness: Harness) -> None:
    server, endpoint = harness.echo()
    offered = {"tcp": {1}, "rdma": {1, 2}, "shm": {3}}[
        harness.backend.name
    ]  # RDMA listeners take TCP clients too
    for number in {1, 2, 3} - offered:
        code, text = refusal(harness.raw(endpoint, connect_frame(transport=number)))
        assert (code, b"transport" in text) == (REFUSE_TRANSPORT, True)
    assert server.counters()["refused"] == 3 - len(offered)


@only_on(lambda backend: backend.name != "tcp")
def test_a_link_frame_that_cannot_be_is_refused_and_counted(harness: Harness) -> None:
    server, endpoint = harness.echo()
    right, wrong = LINK_BYTES[harness.backend.name], 56 - LINK_BYTES[harness.backend.name]
    for count, body in enumerate((bytes(wrong), b"\xff" * right, bytes(right)), start=1):
        connection = harness.raw(endpoint, connect_frame(transport=harness.backend.number))
        assert read_frame(connection)[0] == ACCEPT_TYPE
        connection.sendall(frame(LINK_TYPE, body=body))
        code, text = refusal(connection)
        assert (code, text != b"") == (REFUSE_TRANSPORT, True)
        eventually(lambda count=count: server.counters()["link_failures"] == count, "it is counted")  # type: ignore[misc]
    assert harness.client(endpoint).call([b"fine"], deadline_ns=soon()) == b"fine"


@only_on(lambda backend: backend.name != "tcp")
def test_a_server_that_became_full_before_the_link_refuses_with_its_limit(harness: Harness) -> None:
    server, endpoint = harness.echo(max_connections=1)
    connection = harness.raw(endpoint, connect_frame(transport=harness.backend.number))
    assert read_frame(connection)[0] == ACCEPT_TYPE
    inside = harness.client(endpoint)
    connection.sendall(frame(LINK_TYPE, body=bytes(LINK_BYTES[harness.backend.name])))
    assert refusal(connection) == (REFUSE_FULL, b"all 1 connections of this server are in use")
    assert inside.call([b"who is in stays in"], deadline_ns=soon()) == b"who is in stays in"
    counters = server.counters()
    assert (counters["accepted"], counters["refused"], counters["link_failures"]) == (1, 1, 0)


@only_on(lambda backend: backend.name == "shm")
def test_a_client_that_dies_right_after_it_was_linked_is_gone_at_once(harness: Harness) -> None:
    server, endpoint = harness.listening()
    connection = harness.raw(endpoint, connect_frame(transport=harness.backend.number, loss_ms=600_000))
    assert read_frame(connection)[0] == ACCEPT_TYPE
    connection.sendall(frame(LINK_TYPE, body=struct.pack("<QQ", 1 << 20, 0)))
    _, descriptors, _, _ = socket.recv_fds(connection, 4096, 8)
    assert descriptors, "the memory comes with the frame"
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.close()
    gone = server.next_event(deadline_ns=soon())
    assert isinstance(gone, Disconnected)
    assert "closed the connection" in gone.reason


def test_a_vanishing_client_between_every_two_bytes_leaves_nothing_behind(harness: Harness) -> None:
    server, endpoint = harness.echo()
    harness.client(endpoint).close()  # what is made once is made now
    stream = connect_frame(transport=harness.backend.number)
    if harness.backend.name != "tcp":
        stream += frame(LINK_TYPE, body=bytes(LINK_BYTES[harness.backend.name]))
    eventually(lambda: server.counters()["disconnects"] == 1, "the first one has ended")
    # An end is counted before its descriptors are closed, so the first one's few may still be among these.  Each cut is
    # made more often than they are many: one descriptor that any cut leaves behind shows nevertheless.
    before = len(os.listdir("/proc/self/fd"))
    for cut in range(len(stream) + 1):
        for _ in range(DESCRIPTORS_OF_A_CONNECTION + 1):
            harness.raw(endpoint, stream[:cut]).close()
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before, "all descriptors are closed again")
    counters = server.counters()
    assert counters["accepted"] == counters["disconnects"]
