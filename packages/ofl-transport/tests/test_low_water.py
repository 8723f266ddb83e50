"""Large bodies over TCP from peers that are slow or stop: the kernel tells of much at once, and all of it counts."""

import socket
import struct
import threading
import time

import pytest
from ofl.client import Client
from ofl.errors import PeerLostError
from ofl.interface import Connected, Disconnected, Request
from ofl.server import Server
from transport_frames import (
    HEADER,
    HEADER_VERSION,
    REPLY_TYPE,
    REQUEST_TYPE,
    accept_body,
    connect_body,
    frame,
    read_frame,
)
from transport_harness import ClientOptions, Harness
from transport_times import Elapsed, eventually, joined, scaled, soon, span_ns

BODY = bytes(range(256)) * (16 << 10)
"""4 MiB: over two marks of 1 MiB."""
BEGUN = 64 << 10
"""Bytes of a body after which the mark is set."""
LIMITS: ClientOptions = {"max_frame_bytes": 8 << 20, "heartbeat_ns": span_ns(0.1), "loss_ns": span_ns(0.5)}
DRIP = 1 << 10
DRIPS = 30
"""Two seconds in all, four times the limit, and far below a mark."""


def of_eight_mib(body: bytes) -> bytes:
    """A connect or accept body that agrees to frames of 8 MiB; the size follows the boot nonce in both."""
    return body[:8] + struct.pack("<I", 8 << 20) + body[12:]


def begun(kind: int) -> bytes:
    """The beginning of a frame that carries BODY."""
    return HEADER.pack(b"OFL1", HEADER_VERSION, kind, 0, 1, len(BODY), 0) + BODY[:BEGUN]


def drip(connection: socket.socket) -> int:
    """Send a little of BODY now and then; how much of it is sent after that."""
    for number in range(DRIPS):
        connection.sendall(BODY[BEGUN + number * DRIP :][:DRIP])
        time.sleep(scaled(2) / DRIPS)  # the peer's slowness is what is tested
    return BEGUN + DRIPS * DRIP


def begin_request(harness: Harness) -> tuple[Server, socket.socket]:
    """A server that has read the beginning of a large request, and the socket that it came from."""
    server, endpoint = harness.listening(max_frame_bytes=8 << 20)
    connect = of_eight_mib(connect_body(heartbeat_ms=100, loss_ms=500))
    connection = harness.raw(endpoint, frame(1, body=connect))
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    before = server.counters()["bytes_in"]
    connection.sendall(begun(REQUEST_TYPE))
    eventually(
        lambda: server.counters()["bytes_in"] - before == HEADER.size + BEGUN, "the server has read that"
    )
    return server, connection


def test_a_slow_request_is_no_silence(harness: Harness) -> None:
    server, connection = begin_request(harness)
    sent = drip(connection)
    connection.sendall(BODY[sent:])
    request = server.next_event(deadline_ns=soon())
    assert isinstance(request, Request)
    assert request.body == BODY
    assert server.counters()["lost"] == 0


def test_a_client_that_stops_below_the_mark_is_lost_in_time(harness: Harness) -> None:
    server, connection = begin_request(harness)
    connection.sendall(BODY[BEGUN:][:DRIP])
    with Elapsed() as elapsed:
        gone = server.next_event(deadline_ns=soon())
    assert isinstance(gone, Disconnected)
    assert "no sign of life" in gone.reason
    assert elapsed.seconds < scaled(2)


def begin_reply(harness: Harness) -> tuple[Client, int, socket.socket]:
    """A client with an open call, and the socket of a server that has sent the beginning of its large reply."""
    client, connection = harness.accepted(frame(2, body=of_eight_mib(accept_body())), **LIMITS)
    sequence = client.submit([b"much"], deadline_ns=soon())
    assert read_frame(connection) == (REQUEST_TYPE, 1, b"much")
    connection.sendall(begun(REPLY_TYPE))
    return client, sequence, connection


@pytest.mark.parametrize("waiting", [True, False], ids=["waited for", "not waited for"])
def test_a_slow_reply_is_no_silence(harness: Harness, *, waiting: bool) -> None:
    client, sequence, connection = begin_reply(harness)

    def answer() -> None:
        connection.sendall(BODY[drip(connection) :])

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        if not waiting:
            joined(thread)
        assert client.wait(sequence, deadline_ns=soon()) == BODY
    finally:
        joined(thread)


def test_a_server_that_stops_below_the_mark_is_lost_in_time(harness: Harness) -> None:
    client, sequence, connection = begin_reply(harness)
    connection.sendall(BODY[BEGUN:][:DRIP])
    with Elapsed() as elapsed, pytest.raises(PeerLostError, match="no sign of life"):
        client.wait(sequence, deadline_ns=soon())
    assert elapsed.seconds < scaled(2)
