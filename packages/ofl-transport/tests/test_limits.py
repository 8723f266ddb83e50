"""Sizes, queues and descriptors are bounded."""

import os
import resource
import signal
import socket
import struct
import threading
import time
import warnings

import pytest
from ofl.errors import FrameTooLargeError, PeerLostError, TransportError
from ofl.interface import Connected, Disconnected, Request
from transport_harness import REQUEST_TYPE, Harness, connect_frame, eventually, frame, read_frame, soon


def test_an_oversized_request_is_refused_and_the_connection_lives(harness: Harness) -> None:
    _, endpoint = harness.echo(max_frame_bytes=10_000)
    client = harness.client(endpoint)
    with pytest.raises(FrameTooLargeError, match="request of 10001 bytes is over the limit of 10000"):
        client.submit([bytes(10_000), b"x"], deadline_ns=soon())
    assert len(client.call([bytes(10_000)], deadline_ns=soon())) == 10_000


def test_an_oversized_reply_is_refused_and_the_call_stays_open(harness: Harness) -> None:
    server = harness.server()
    client = harness.client(server.listen("tcp://127.0.0.1:0"), max_frame_bytes=2000)
    sequence = client.submit([b"x"], deadline_ns=soon())
    server.next_event(deadline_ns=soon())
    request = server.next_event(deadline_ns=soon())
    assert isinstance(request, Request)
    with pytest.raises(FrameTooLargeError, match="reply of 2001 bytes"):
        server.reply(request.connection, request.sequence, [bytes(2001)])
    assert server.reply(request.connection, request.sequence, [b"smaller"])
    assert client.wait(sequence, deadline_ns=soon()) == b"smaller"


def test_a_consumer_that_lags_stops_the_reading_and_nothing_is_lost(harness: Harness) -> None:
    server = harness.server(max_queued_bytes=1 << 20)
    client = harness.client(server.listen("tcp://127.0.0.1:0"))
    count, body = 100, bytes(1 << 20)
    done = threading.Event()

    def send() -> None:
        for _ in range(count):
            client.submit([body], deadline_ns=soon(20))
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    eventually(lambda: server.counters()["throttled"] > 0, "reading stops")
    time.sleep(0.3)  # what is in flight settles: the kernel's buffers hold a few frames more
    held = server.counters()["requests"]
    assert held < 20
    assert not done.is_set()
    taken = 0
    while taken < count:
        event = server.next_event(deadline_ns=soon())
        assert event is not None
        taken += isinstance(event, Request) and len(event.body) == len(body)
    thread.join(10)
    assert done.is_set()
    assert client.alive


def test_both_directions_can_be_full_at_once(harness: Harness) -> None:
    _, endpoint = harness.echo(max_frame_bytes=1 << 24)
    client = harness.client(endpoint, max_frame_bytes=1 << 24)
    body = bytes(1 << 24)
    sequences = [client.submit([body], deadline_ns=soon(20)) for _ in range(6)]
    for sequence in sequences:
        assert len(client.wait(sequence, deadline_ns=soon(20))) == len(body)


def test_a_client_that_never_reads_its_replies_is_cut_off(harness: Harness) -> None:
    server = harness.server(max_frame_bytes=1 << 20, max_queued_bytes=1 << 20)
    connection = harness.raw(server.listen("tcp://127.0.0.1:0"), connect_frame(loss_ms=60_000))
    for sequence in range(1, 65):
        connection.sendall(frame(REQUEST_TYPE, sequence=sequence))
    gone = None
    while not isinstance(gone, Disconnected):
        gone = server.next_event(deadline_ns=soon())
        assert gone is not None
        if isinstance(gone, Request):
            server.reply(gone.connection, gone.sequence, [bytes(1 << 20)])
    assert gone.reason


def test_disconnect_tells_the_client_why_and_wakes_it(harness: Harness) -> None:
    server = harness.server()
    client = harness.client(server.listen("tcp://127.0.0.1:0"))
    sequence = client.submit([b"x"], deadline_ns=soon())
    connected = server.next_event(deadline_ns=soon())
    assert isinstance(connected, Connected)
    server.next_event(deadline_ns=soon())
    server.disconnect(connected.connection, "maintenance until noon")
    with pytest.raises(PeerLostError, match="maintenance until noon"):
        client.wait(sequence, deadline_ns=soon())
    gone = server.next_event(deadline_ns=soon())
    assert gone == Disconnected(connected.connection, "maintenance until noon")
    assert server.reply(connected.connection, sequence, [b"?"]) is False
    server.disconnect(connected.connection, "again")
    assert server.counters()["disconnects"] == 1


def test_connection_numbers_are_never_used_twice(harness: Harness) -> None:
    server = harness.server()
    endpoint = server.listen("tcp://127.0.0.1:0")
    seen = []
    for _ in range(50):
        client = harness.client(endpoint)
        connected = server.next_event(deadline_ns=soon())
        assert isinstance(connected, Connected)
        seen.append(connected.connection)
        client.close()
        assert server.next_event(deadline_ns=soon()) is not None
    assert len(set(seen)) == 50


def test_a_thousand_connections_come_and_go_without_a_descriptor_or_thread_left(harness: Harness) -> None:
    server, endpoint = harness.echo()
    harness.client(endpoint).close()
    eventually(lambda: server.counters()["disconnects"] == 1, "the first one ends")
    descriptors, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for index in range(1000):
        if index % 2:
            client = harness.client(endpoint)
            client.submit([b"x"], deadline_ns=soon())
            client.close()
            continue
        # A killed process: a connection that negotiated is reset in the middle of a frame.
        connection = harness.raw(endpoint, connect_frame())
        read_frame(connection)
        connection.sendall(frame(REQUEST_TYPE, sequence=1, body=bytes(100))[:50])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    eventually(lambda: server.counters()["disconnects"] == 1001, "all ends are seen")
    eventually(lambda: len(os.listdir("/proc/self/fd")) == descriptors, "descriptors are back")
    eventually(lambda: len(os.listdir("/proc/self/task")) == threads, "threads are back")


def test_killed_clients_leave_no_descriptor_in_the_server(harness: Harness) -> None:
    process, endpoint = harness.echo_process()
    folder = f"/proc/{process.pid}/fd"
    before = len(os.listdir(folder))
    for _ in range(200):
        connection = harness.raw(endpoint, connect_frame() + frame(REQUEST_TYPE, sequence=1, body=b"x")[:30])
        connection.close()
    eventually(lambda: len(os.listdir(folder)) == before, "the server's descriptors are back")


def test_running_out_of_descriptors_costs_new_connections_only(harness: Harness) -> None:
    process, endpoint = harness.echo_process()
    client = harness.client(endpoint)
    limit = len(os.listdir(f"/proc/{process.pid}/fd")) + 10
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    for _ in range(30):
        harness.raw(endpoint)
    for _ in range(50):
        assert client.call([b"still served"], deadline_ns=soon()) == b"still served"
    busy = _cpu_seconds(process.pid)
    time.sleep(0.5)
    assert _cpu_seconds(process.pid) - busy < 0.25  # does not spin on connections that it cannot take


def test_a_child_after_fork_leaves_the_parents_connection_alone(harness: Harness) -> None:
    server, endpoint = harness.echo()
    client = harness.client(endpoint)
    with warnings.catch_warnings():
        # Newer Pythons warn of fork() beside threads in general; that it is safe for these handles is the test.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        refused = 0
        try:
            client.call([b"x"], deadline_ns=soon())
        except TransportError:
            refused = 1
        client.close()
        client.__del__()
        server.close()
        server.__del__()
        os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.call([b"unharmed"], deadline_ns=soon()) == b"unharmed"
    assert server.counters()["disconnects"] == 0


def test_sockets_are_not_inherited_by_programs(harness: Harness) -> None:
    _, endpoint = harness.echo()
    harness.client(endpoint)
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:") or "eventpoll" in target or "eventfd" in target:
            assert not os.get_inheritable(int(name)), target


def test_a_write_to_a_closed_peer_is_no_signal(harness: Harness) -> None:
    server = harness.server()
    endpoint = server.listen("tcp://127.0.0.1:0")
    requests = b"".join(frame(REQUEST_TYPE, sequence=sequence) for sequence in range(1, 11))
    before = signal.signal(
        signal.SIGPIPE, signal.SIG_DFL
    )  # Python ignores it; other hosts of the library may not
    try:
        for _ in range(50):
            connection = harness.raw(endpoint, connect_frame() + requests)
            events = [server.next_event(deadline_ns=soon()) for _ in range(11)]
            connection.close()
            # The first writes reach a socket without a reader, the later ones a connection that it has reset.
            for event in events[1:]:
                assert isinstance(event, Request)
                server.reply(event.connection, event.sequence, [b"to nobody"])
            assert isinstance(server.next_event(deadline_ns=soon()), Disconnected)
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_an_idle_server_and_client_use_next_to_no_cpu(harness: Harness) -> None:
    _, endpoint = harness.echo()
    harness.client(endpoint)
    begun = time.process_time()
    time.sleep(1)
    assert time.process_time() - begun < 0.1


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
