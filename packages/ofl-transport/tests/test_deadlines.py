"""Deadlines against a full backlog, and against a peer that drips frames on its socket over TCP."""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest
from ofl.errors import DeadlineError
from transport_frames import HEARTBEAT_TYPE, accept_frame, frame, read_frame
from transport_harness import Harness
from transport_times import Elapsed, after, scaled


def test_connecting_to_a_full_backlog_ends_at_the_deadline(harness: Harness) -> None:
    listener = harness.stack.enter_context(socket.socket())
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    name = listener.getsockname()
    # The kernel drops connection attempts once the queue is full, as a dead host on a network would.
    for _ in range(3):
        filler = harness.stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(name)
    with Elapsed() as elapsed, pytest.raises(DeadlineError):
        harness.client(f"tcp://127.0.0.1:{name[1]}", deadline_ns=after(0.2))
    assert scaled(0.19) < elapsed.seconds < scaled(1)


def test_a_signal_does_not_end_the_wait_for_room_in_a_backlog(harness: Harness) -> None:
    name = f"full-{os.getpid()}"
    listener = harness.stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(f"\0ofl/{name}")
    listener.listen(0)
    harness.stack.enter_context(socket.socket(socket.AF_UNIX)).connect(f"\0ofl/{name}")
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, scaled(0.05), scaled(0.05))
    try:
        with Elapsed() as elapsed, pytest.raises(DeadlineError, match="did not answer before the deadline"):
            harness.client(f"shm://{name}", deadline_ns=after(0.5))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(heard) > 1
    assert scaled(0.49) < elapsed.seconds < scaled(2)


def test_a_signal_that_comes_again_and_again_leaves_a_negotiation_its_time(harness: Harness) -> None:
    listener, endpoint = harness.listener()
    stop = threading.Event()

    def accept_slowly() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, EOFError):  # a client that began anew is gone
                connection = harness.stack.enter_context(listener.accept()[0])
                read_frame(connection)
                time.sleep(0.1)
                connection.sendall(accept_frame())

    thread = threading.Thread(target=accept_slowly)
    thread.start()
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        client = harness.client(endpoint)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)  # which wakes accept
    assert client.peer.boot_nonce == 7
    assert heard
    thread.join()


def test_a_peer_that_drips_heartbeats_does_not_stretch_a_deadline(harness: Harness) -> None:
    listener, endpoint = harness.listener()
    stop = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            read_frame(connection)
            connection.sendall(accept_frame())
            with contextlib.suppress(OSError):  # the client may close first
                while not stop.is_set():
                    connection.sendall(frame(HEARTBEAT_TYPE) * 50)

    thread = threading.Thread(target=drip)
    thread.start()
    client = harness.client(endpoint)
    with Elapsed() as elapsed, pytest.raises(DeadlineError):
        client.call([b"x"], deadline_ns=after(0.3))
    stop.set()
    thread.join()
    assert elapsed.seconds < scaled(1)
