"""Whatever comes in on the port, the server goes on serving, counts it, and holds nothing for it."""

import contextlib
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from ofl.interface import Connected, Disconnected
from transport_harness import (
    CANCEL_TYPE,
    CLOSE_TYPE,
    CONNECT_TYPE,
    HEADER,
    REFUSE_TYPE,
    REPLY_TYPE,
    REQUEST_TYPE,
    SECOND,
    Harness,
    connect_frame,
    eventually,
    frame,
    read_frame,
    soon,
)


@contextlib.contextmanager
def good_client(harness: Harness, endpoint: str) -> Iterator[Callable[[], int]]:
    """A client that calls all the while; yields a function that says how often it was served."""
    client = harness.client(endpoint)
    stop = threading.Event()
    served = 0
    failures: list[BaseException] = []

    def work() -> None:
        nonlocal served
        try:
            while not stop.is_set():
                body = served.to_bytes(8, "little")
                assert client.call([body], deadline_ns=soon(10)) == body
                served += 1
                time.sleep(0.001)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: served
    finally:
        stop.set()
        thread.join(20)
    assert failures == []


def finish(connection: socket.socket) -> bytes:
    """Everything the server still says, until it closes the connection (or resets it)."""
    data = b""
    with contextlib.suppress(ConnectionError), connection:
        while piece := connection.recv(65536):
            data += piece
    return data


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A valid stream with a few bytes changed, cut off, doubled or put in."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed))
        kind = chance.randrange(4)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[at : at + chance.randrange(1, 40)]
            changed = changed or bytearray(b"\0")
        elif kind == 2:
            changed[at:at] = chance.randbytes(chance.randrange(1, 40))
        else:
            changed[at:at] = changed[max(0, at - 30) : at]
    return bytes(changed)


def test_a_thousand_garbage_connections_never_disturb_a_client(harness: Harness) -> None:
    server, endpoint = harness.echo()
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    with good_client(harness, endpoint) as served:
        for _ in range(1000):
            connection = harness.raw(endpoint)
            with contextlib.suppress(ConnectionError), connection:
                connection.sendall(b"\xff" + chance.randbytes(chance.randrange(24, 300)))
                assert connection.recv(1) == b""
        assert served() > 50
    assert server.counters()["garbage"] == 1000
    assert server.counters()["disconnects"] == 0


def test_a_thousand_mutated_streams_never_disturb_a_client(harness: Harness) -> None:
    server, endpoint = harness.echo()
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    valid = (
        connect_frame()
        + frame(REQUEST_TYPE, sequence=1, body=chance.randbytes(100))
        + frame(REQUEST_TYPE, sequence=2)
        + frame(CANCEL_TYPE, sequence=2)
        + frame(CLOSE_TYPE)
    )
    with good_client(harness, endpoint) as served:
        for _ in range(1000):
            connection = harness.raw(endpoint)
            with contextlib.suppress(ConnectionError), connection:
                connection.sendall(mutate(valid, chance))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        assert served() > 50
    assert harness.client(endpoint).call([b"fine"], deadline_ns=soon()) == b"fine"
    assert server.counters()["garbage"] > 100
    open_now = 2  # the good client and the one above
    eventually(
        lambda: server.counters()["accepted"] - server.counters()["disconnects"] == open_now,
        "every mutated stream that negotiated has ended",
    )


def test_silent_connections_are_dropped_at_the_handshake_deadline(harness: Harness) -> None:
    server, endpoint = harness.echo(handshake_ns=SECOND // 5)
    connections = [harness.raw(endpoint) for _ in range(20)]
    begun = time.monotonic()
    assert [finish(connection) for connection in connections] == [b""] * 20
    assert time.monotonic() - begun < 1
    assert server.counters()["handshake_timeouts"] == 20


def test_a_byte_at_a_time_does_not_extend_the_handshake(harness: Harness) -> None:
    server, endpoint = harness.echo(handshake_ns=SECOND // 5)
    connection = harness.raw(endpoint)
    begun = time.monotonic()
    with contextlib.suppress(ConnectionError):
        for byte in connect_frame()[:-1]:
            connection.sendall(bytes([byte]))
            time.sleep(0.005)
    assert finish(connection) == b""
    assert time.monotonic() - begun < 1
    assert server.counters()["handshake_timeouts"] == 1


def test_a_flood_of_silent_connections_gives_way_to_a_client(harness: Harness) -> None:
    server, endpoint = harness.echo(max_pending=16, handshake_ns=60 * SECOND)
    for _ in range(200):
        harness.raw(endpoint)
    assert harness.client(endpoint).call([b"through"], deadline_ns=soon()) == b"through"
    assert server.counters()["evicted"] >= 180


def test_a_frame_that_is_never_finished_ends_its_connection(harness: Harness) -> None:
    server = harness.server(frame_ns=SECOND // 5)
    endpoint = server.listen("tcp://127.0.0.1:0")
    connection = harness.raw(endpoint, connect_frame())
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    whole = frame(REQUEST_TYPE, sequence=1, body=bytes(1000))
    stop = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            for byte in whole:
                connection.sendall(bytes([byte]))
                if stop.wait(0.02):
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    begun = time.monotonic()
    gone = server.next_event(deadline_ns=soon())
    stop.set()
    thread.join(5)
    assert isinstance(gone, Disconnected)
    assert "not finished in time" in gone.reason
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    ("data", "clause"),
    [
        (frame(CANCEL_TYPE, sequence=0), "sequence of a call is zero"),
        (frame(REQUEST_TYPE, sequence=1) * 2, "slot that is in use"),
        (frame(REQUEST_TYPE, sequence=1) + frame(REQUEST_TYPE, sequence=257), "slot that is in use"),
        (frame(REPLY_TYPE, sequence=1), "a client never sends"),
        (connect_frame(), "a client never sends"),
        (frame(REQUEST_TYPE, sequence=1, version=2), "header_version"),
        (struct.pack("<4sBBHQII", b"OFL1", 1, REQUEST_TYPE, 1, 1, 0, 0), "flags"),
        (struct.pack("<4sBBHQII", b"OFL1", 1, REQUEST_TYPE, 0, 1, 0, 9), "reserved"),
        (struct.pack("<4sBBHQII", b"OFL1", 1, 99, 0, 1, 0, 0), "type is unknown"),
    ],
)
def test_a_client_that_breaks_the_rules_is_dropped_with_the_field_named(
    harness: Harness, data: bytes, clause: str
) -> None:
    server = harness.server()
    endpoint = server.listen("tcp://127.0.0.1:0")
    harness.raw(endpoint, connect_frame() + data)
    events = []
    while not (events and isinstance(events[-1], Disconnected)):
        events.append(server.next_event(deadline_ns=soon()))
        assert events[-1] is not None
    assert isinstance(events[0], Connected)
    assert clause in events[-1].reason
    assert server.counters()["garbage"] == 1


def test_too_many_open_calls_end_a_connection(harness: Harness) -> None:
    server = harness.server(max_calls=2)
    endpoint = server.listen("tcp://127.0.0.1:0")
    harness.raw(endpoint, connect_frame() + b"".join(frame(REQUEST_TYPE, sequence=n) for n in (1, 2, 3)))
    eventually(lambda: server.counters()["garbage"] == 1, "the connection is dropped", seconds=2)


def test_an_oversized_frame_is_refused_before_its_body_is_read(harness: Harness) -> None:
    server, endpoint = harness.echo(max_frame_bytes=4096)
    connection = harness.raw(endpoint, connect_frame() + HEADER.pack(b"OFL1", 1, REQUEST_TYPE, 0, 1, 4097, 0))
    read_frame(connection)
    kind, _, text = read_frame(connection)
    assert (kind, text) == (CLOSE_TYPE, b"body_bytes is over the agreed limit")
    assert server.counters()["oversized"] == 1


def test_another_header_version_is_answered_with_a_refusal(harness: Harness) -> None:
    _, endpoint = harness.echo()
    connection = harness.raw(endpoint, frame(CONNECT_TYPE, body=bytes(96), version=2))
    kind, _, body = read_frame(connection)
    assert kind == REFUSE_TYPE
    assert b"wire header version 1 only" in body


def test_a_vanishing_client_between_every_two_bytes_leaves_nothing_behind(harness: Harness) -> None:
    server, endpoint = harness.echo()
    stream = connect_frame() + frame(REQUEST_TYPE, sequence=1, body=bytes(60))
    before = len(os.listdir("/proc/self/fd"))
    for cut in range(len(stream) + 1):
        connection = harness.raw(endpoint, stream[:cut])
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )  # reset, not close
        connection.close()
    eventually(lambda: len(os.listdir("/proc/self/fd")) == before, "all descriptors are closed again")
    counters = server.counters()
    assert counters["accepted"] == counters["disconnects"]
