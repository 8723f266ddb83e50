"""Sizes, queues, descriptors and CPU are bounded."""

import os
import threading
import time

import pytest
from ofl.errors import FrameTooLargeError, PeerLostError
from ofl.interface import Connected, Disconnected, Request
from ofl.memory import Buffer
from transport_harness import Harness, answer, said, take, tell
from transport_times import eventually, scaled, soon, span_ns

HEARTBEAT_BYTES = 24


def test_an_oversized_request_is_refused_and_the_connection_lives(harness: Harness) -> None:
    _, endpoint = harness.echo(max_frame_bytes=10_000)
    client = harness.client(endpoint)
    with pytest.raises(FrameTooLargeError, match="request of 10001 bytes is over the limit of 10000"):
        client.submit([bytes(10_000), b"x"], deadline_ns=soon())
    assert len(client.call([bytes(10_000)], deadline_ns=soon())) == 10_000


def test_an_oversized_reply_is_refused_and_the_call_stays_open(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint, max_frame_bytes=2000)
    sequence = client.submit([b"x"], deadline_ns=soon())
    request = take(server)
    assert request.max_reply_bytes == 2000
    with pytest.raises(FrameTooLargeError, match="reply of 2001 bytes"):
        server.reply(request.connection, request.sequence, [bytes(2001)])
    answer(server, request, b"smaller")
    assert client.wait(sequence, deadline_ns=soon()) == b"smaller"


def test_a_consumer_that_lags_stops_the_reading_and_nothing_is_lost(harness: Harness) -> None:
    server, endpoint = harness.listening(max_queued_bytes=1 << 20)
    client = harness.client(endpoint)
    count, body = 100, bytes(1 << 20)
    done = threading.Event()

    def send() -> None:
        for _ in range(count):
            client.submit([body], deadline_ns=soon())
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    eventually(lambda: server.counters()["throttled"] > 0, "reading stops")
    said = server.counters()["bytes_out"]
    # Each heartbeat is a turn of the server's loop, which could have read more.
    eventually(
        lambda: server.counters()["bytes_out"] >= said + 10 * HEARTBEAT_BYTES, "it goes on without reading"
    )
    held = server.counters()["requests"]
    assert held < 20
    assert not done.is_set()
    taken = 0
    while taken < count:
        event = server.next_event(deadline_ns=soon())
        assert event is not None
        taken += isinstance(event, Request) and len(event.body) == len(body)
    thread.join()
    assert done.is_set()
    assert client.alive


def test_a_large_reply_leaves_while_the_reading_is_stopped(harness: Harness) -> None:
    server, endpoint = harness.listening(max_queued_bytes=1 << 20, max_frame_bytes=1 << 23)
    client = harness.client(endpoint, max_frame_bytes=1 << 23)
    first = client.submit([b"first"], deadline_ns=soon())
    asked = take(server)
    later = [client.submit([bytes(300_000)], deadline_ns=soon()) for _ in range(4)]
    eventually(lambda: server.counters()["throttled"] > 0, "reading stops")
    large = bytes(range(256)) * (1 << 14)
    server.reply(asked.connection, asked.sequence, [large])
    assert client.wait(first, deadline_ns=soon()) == large
    for sequence in later:
        answer(server, take(server), b"taken")
        assert client.wait(sequence, deadline_ns=soon()) == b"taken"
    assert client.alive


def test_both_directions_can_be_full_at_once(harness: Harness) -> None:
    _, endpoint = harness.echo(max_frame_bytes=1 << 24)
    client = harness.client(endpoint, max_frame_bytes=1 << 24)
    body = bytes(1 << 24)
    sequences = [client.submit([body], deadline_ns=soon()) for _ in range(6)]
    for sequence in sequences:
        assert len(client.wait(sequence, deadline_ns=soon())) == len(body)


def test_a_client_that_never_reads_its_replies_is_cut_off(harness: Harness) -> None:
    server, endpoint = harness.listening(max_queued_bytes=1 << 20)
    process = harness.peer_process("client", endpoint, "hoarding", str(span_ns(60)), "64")
    assert said(process, "connected") == ""
    tell(process, "go")
    gone = None
    while not isinstance(gone, Disconnected):
        gone = server.next_event(deadline_ns=soon())
        assert gone is not None
        if isinstance(gone, Request):
            server.reply(gone.connection, gone.sequence, [bytes(1 << 20)])
    assert "does not read its replies" in gone.reason
    assert process.poll() is None


def test_unread_replies_in_lent_memory_are_nobodys_burden(harness: Harness) -> None:
    calls, size = 40, 1 << 20
    server, endpoint = harness.listening(max_queued_bytes=1 << 16, max_frame_bytes=size)
    client = harness.client(endpoint, max_frame_bytes=size)
    sequences = [client.submit([b"x"], deadline_ns=soon()) for _ in range(calls)]
    text = bytes(range(256)) * (size // 256)
    rows = Buffer(size)
    rows.view[:] = text
    server.register(rows)
    for _ in sequences:
        asked = take(server)
        assert server.reply(asked.connection, asked.sequence, [rows.view], lent=rows)
    for sequence in sequences:
        assert client.wait(sequence, deadline_ns=soon()) == text
    assert server.idle(rows, deadline_ns=soon())
    assert server.counters()["disconnects"] == 0


def test_disconnect_tells_the_client_why_and_wakes_it(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    sequence = client.submit([b"x"], deadline_ns=soon())
    connected = server.next_event(deadline_ns=soon())
    assert isinstance(connected, Connected)
    take(server)
    server.disconnect(connected.connection, "maintenance until noon")
    with pytest.raises(PeerLostError, match="maintenance until noon"):
        client.wait(sequence, deadline_ns=soon())
    gone = server.next_event(deadline_ns=soon())
    assert gone == Disconnected(connected.connection, "maintenance until noon")
    assert server.reply(connected.connection, sequence, [b"?"]) is False
    server.disconnect(connected.connection, "again")
    assert server.counters()["disconnects"] == 1


def test_what_was_answered_before_closing_arrives(harness: Harness) -> None:
    answered, size = 16, 1 << 18
    server, endpoint = harness.listening(max_frame_bytes=size, max_queued_bytes=answered * size)
    client = harness.client(endpoint, max_frame_bytes=size)
    sequences = [client.submit([b"x"], deadline_ns=soon()) for _ in range(answered + 1)]
    for _ in range(answered):
        asked = take(server)
        assert server.reply(asked.connection, asked.sequence, [bytes(size)])
    closing = threading.Thread(target=server.close)
    closing.start()
    for sequence in sequences[:-1]:
        assert client.wait(sequence, deadline_ns=soon()) == bytes(size)
    with pytest.raises(PeerLostError, match="the server is closing"):
        client.wait(sequences[-1], deadline_ns=soon())
    closing.join()


def test_newcomers_take_nothing_from_those_who_leave(harness: Harness) -> None:
    # More than a connection holds on its way, and less than an emulated device moves in the second that they have.
    size = 1 << (21 if harness.backend.one_sided else 23)
    server, endpoint = harness.listening(max_frame_bytes=size, max_pending=1)
    clients = [harness.client(endpoint, max_frame_bytes=size) for _ in range(2)]
    sequences = [client.submit([b"x"], deadline_ns=soon()) for client in clients]
    for _ in clients:
        asked = take(server)
        assert server.reply(asked.connection, asked.sequence, [bytes(size)])
    closing = threading.Thread(target=server.close)
    closing.start()
    eventually(lambda: server.counters()["disconnects"] == len(clients), "all are told to leave")
    newcomers = [harness.raw(endpoint) for _ in range(4)]
    for client, sequence in zip(clients, sequences, strict=True):
        assert client.wait(sequence, deadline_ns=soon()) == bytes(size)
    closing.join()
    assert len(newcomers) > server.counters()["evicted"] > 0


def test_a_server_that_closes_tells_its_clients(harness: Harness) -> None:
    server, endpoint = harness.echo()
    client = harness.client(endpoint)
    assert client.call([b"x"], deadline_ns=soon()) == b"x"
    server.close()
    eventually(lambda: not client.alive, "alive turns False")
    with pytest.raises(PeerLostError, match="the server is closing"):
        client.submit([b"y"], deadline_ns=soon())


def test_connection_numbers_are_never_used_twice(harness: Harness) -> None:
    server, endpoint = harness.listening()
    seen = []
    for _ in range(50):
        client = harness.client(endpoint)
        connected = server.next_event(deadline_ns=soon())
        assert isinstance(connected, Connected)
        seen.append(connected.connection)
        client.close()
        assert server.next_event(deadline_ns=soon()) is not None
    assert len(set(seen)) == 50


def test_connections_come_and_go_without_a_descriptor_or_thread_left(harness: Harness) -> None:
    server, endpoint = harness.echo()
    harness.client(endpoint).close()
    eventually(lambda: server.counters()["disconnects"] == 1, "the first one ends")
    descriptors, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for _ in range(300):
        client = harness.client(endpoint)
        client.submit([b"x"], deadline_ns=soon())
        client.close()
    eventually(lambda: server.counters()["disconnects"] == 301, "all ends are seen")
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, f"{descriptors} descriptors again")
    eventually(lambda: len(os.listdir("/proc/self/task")) <= threads, f"{threads} threads again")


def test_an_idle_server_and_client_use_next_to_no_cpu(harness: Harness) -> None:
    server, endpoint = harness.echo()
    client = harness.client(endpoint)
    client.call([b"x"], deadline_ns=soon())
    said, begun = server.counters()["bytes_out"], others_cpu_s()
    # Some forty heartbeats a second, at either end, and as many wake-ups.
    eventually(lambda: server.counters()["bytes_out"] >= said + 40 * HEARTBEAT_BYTES, "forty heartbeats")
    assert others_cpu_s() - begun < scaled(0.04)


def others_cpu_s() -> float:
    """CPU time of this process without that of the thread that asks: of the library's threads and the consumer."""
    return time.process_time() - time.thread_time()
