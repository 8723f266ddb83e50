"""Whatever comes in on a TCP connection, the server goes on serving, counts it, and holds nothing for it."""

import contextlib
import os
import random
import socket
import struct
import threading
import time

import pytest
from ofl.errors import FrameTooLargeError
from ofl.interface import Connected, Disconnected, Event
from transport_frames import (
    CANCEL_TYPE,
    CANCELLED_TYPE,
    CLOSE_TYPE,
    HEADER,
    HEADER_VERSION,
    REPLY_TYPE,
    REQUEST_TYPE,
    connect_frame,
    frame,
    mutate,
    read_frame,
)
from transport_harness import Harness, answer, take
from transport_times import SECOND, eventually, joined, soon


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
    with harness.busy_client(endpoint) as served:
        for _ in range(1000):
            connection = harness.raw(endpoint)
            with contextlib.suppress(ConnectionError), connection:
                connection.sendall(mutate(valid, chance))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        eventually(lambda: served() > 50, "the client is served all the while")
    assert harness.client(endpoint).call([b"fine"], deadline_ns=soon()) == b"fine"
    assert server.counters()["garbage"] > 100
    open_now = 2  # the good client and the one above
    eventually(
        lambda: server.counters()["accepted"] - server.counters()["disconnects"] == open_now,
        "every mutated stream that negotiated has ended",
    )


def test_a_frame_that_is_never_finished_ends_its_connection(harness: Harness) -> None:
    server, endpoint = harness.listening(frame_ns=SECOND // 5)
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
    joined(thread)
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
        (frame(REQUEST_TYPE, sequence=1, version=3), "header_version"),
        (frame(REQUEST_TYPE, sequence=1, flags=2), "flags"),
        (frame(REQUEST_TYPE, sequence=1, flags=1), "no room for its placement"),
        (frame(CANCEL_TYPE, sequence=1, flags=1), "flags"),
        (HEADER.pack(b"OFL1", HEADER_VERSION, REQUEST_TYPE, 0, 1, 0, 9), "reserved"),
        (HEADER.pack(b"OFL1", HEADER_VERSION, 99, 0, 1, 0, 0), "type is unknown"),
    ],
)
def test_a_client_that_breaks_the_rules_is_dropped_with_the_field_named(
    harness: Harness, data: bytes, clause: str
) -> None:
    server, endpoint = harness.listening()
    harness.raw(endpoint, connect_frame() + data)
    events: list[Event] = []
    while not (events and isinstance(events[-1], Disconnected)):
        event = server.next_event(deadline_ns=soon())
        assert event is not None
        events.append(event)
    assert isinstance(events[0], Connected)
    assert clause in events[-1].reason
    assert server.counters()["garbage"] == 1


def test_too_many_open_calls_end_a_connection(harness: Harness) -> None:
    server, endpoint = harness.listening(max_calls=2)
    harness.raw(endpoint, connect_frame() + b"".join(frame(REQUEST_TYPE, sequence=n) for n in (1, 2, 3)))
    eventually(lambda: server.counters()["garbage"] == 1, "the connection is dropped", seconds=2)


def test_a_placed_request_takes_a_reply_of_the_size_that_it_says(harness: Harness) -> None:
    server, endpoint = harness.listening()
    placement = struct.pack("<QII", 0, 0, 10)
    connection = harness.raw(
        endpoint, connect_frame() + frame(REQUEST_TYPE, sequence=1, flags=1, body=placement + b"ask")
    )
    request = take(server)
    assert (bytes(request.body), request.max_reply_bytes) == (b"ask", 10)
    with pytest.raises(FrameTooLargeError):
        server.reply(request.connection, request.sequence, [bytes(11)])
    answer(server, request, b"ten bytes.")
    read_frame(connection)
    assert read_frame(connection) == (REPLY_TYPE, 1, b"ten bytes.")


def test_a_cancel_of_a_placed_call_is_acknowledged_and_one_of_another_is_not(harness: Harness) -> None:
    server, endpoint = harness.listening()
    placement = struct.pack("<QII", 0, 0, 10)
    calls = frame(REQUEST_TYPE, sequence=1, flags=1, body=placement) + frame(REQUEST_TYPE, sequence=2)
    cancels = frame(CANCEL_TYPE, sequence=2) + frame(CANCEL_TYPE, sequence=1)
    connection = harness.raw(endpoint, connect_frame() + calls + cancels)
    read_frame(connection)
    assert read_frame(connection) == (CANCELLED_TYPE, 1, b"")
    assert server.counters()["cancels"] == 2


def test_an_oversized_frame_is_refused_before_its_body_is_read(harness: Harness) -> None:
    server, endpoint = harness.echo(max_frame_bytes=4096)
    oversized = HEADER.pack(b"OFL1", HEADER_VERSION, REQUEST_TYPE, 0, 1, 4097, 0)
    connection = harness.raw(endpoint, connect_frame() + oversized)
    read_frame(connection)
    kind, _, text = read_frame(connection)
    assert (kind, text) == (CLOSE_TYPE, b"body_bytes is over the agreed limit")
    assert server.counters()["oversized"] == 1


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


def test_requests_that_are_taken_back_at_once_do_not_pile_up(harness: Harness) -> None:
    server, endpoint = harness.listening()
    connection = harness.raw(endpoint, connect_frame(loss_ms=60_000))
    connection.settimeout(None)
    read_frame(connection)
    pairs = 100_000
    flood = b"".join(
        frame(REQUEST_TYPE, sequence=sequence) + frame(CANCEL_TYPE, sequence=sequence)
        for sequence in range(1, pairs + 1)
    )
    last = frame(REQUEST_TYPE, sequence=pairs + 1, body=b"wanted")
    sender = threading.Thread(target=connection.sendall, args=(flood + last,))
    sender.start()
    eventually(lambda: server.counters()["throttled"] == 1, "reading stops")
    # The limit, and what one turn of reading takes.
    assert server.counters()["requests"] <= 1024 + (1 << 20) // (2 * HEADER.size)
    while bytes(take(server).body) != b"wanted":
        pass  # taken between its two frames
    sender.join()
    assert server.counters()["cancels"] == pairs
