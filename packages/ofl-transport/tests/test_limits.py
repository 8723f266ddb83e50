"""Bounds that a plain socket tests best: hostile readers, descriptors that run out, what a socket hands down."""

import os
import resource
import signal
import socket
import struct
import time

from ofl.interface import Disconnected, Request
from transport_frames import REQUEST_TYPE, connect_frame, frame, read_frame
from transport_harness import Harness
from transport_times import eventually, scaled, soon


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
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, f"{descriptors} descriptors again")
    eventually(lambda: len(os.listdir("/proc/self/task")) <= threads, f"{threads} threads again")


def test_running_out_of_descriptors_costs_new_connections_only(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint)
    limit = len(os.listdir(f"/proc/{process.pid}/fd")) + 10
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    for _ in range(30):
        harness.raw(endpoint)
    for _ in range(50):
        assert client.call([b"still served"], deadline_ns=soon()) == b"still served"
    busy = _cpu_seconds(process.pid)
    time.sleep(scaled(0.5))
    assert _cpu_seconds(process.pid) - busy < scaled(0.25)  # does not spin on connections that it cannot take


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
    server, endpoint = harness.listening()
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


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
