"""Deadlines and signals against a full backlog, and against a peer that drips frames on its socket over TCP."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from ofl.errors import DeadlineError
from transport_frames import HEARTBEAT_TYPE, accept_frame, frame, read_frame
from transport_harness import Harness
from transport_sockets import attempts
from transport_times import Elapsed, after, eventually, scaled

LIVES_S = 0.1
"""The age at which an attempt has outlived the signals: with one a millisecond, a hundred of them."""


def full_backlog(harness: Harness) -> tuple[socket.socket, list[socket.socket]]:
    """A listener whose queue is full, and who fills it: the kernel drops attempts, as a dead host would."""
    listener = harness.stack.enter_context(socket.socket())
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = [harness.stack.enter_context(socket.socket()) for _ in range(3)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
    return listener, fillers


@contextlib.contextmanager
def alarms(seconds: float) -> Iterator[list[int]]:
    """A signal again and again; yields those that the handler heard."""
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield heard
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def accepting(
    harness: Harness,
    listener: socket.socket,
    *,
    before: Callable[[], None] = lambda: None,
    pause_s: float = 0.0,
) -> Iterator[None]:
    """A thread that agrees with every client.  before: what it does first; pause_s: how long each client waits."""
    stop = threading.Event()

    def accept_all() -> None:
        before()
        while not stop.is_set():
            with contextlib.suppress(OSError, EOFError):  # a client that began anew is gone
                connection = harness.stack.enter_context(listener.accept()[0])
                read_frame(connection)
                time.sleep(pause_s)
                connection.sendall(accept_frame())

    thread = threading.Thread(target=accept_all)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)  # which wakes accept
        thread.join()


def test_connecting_to_a_full_backlog_ends_at_the_deadline(harness: Harness) -> None:
    listener, _ = full_backlog(harness)
    with Elapsed() as elapsed, pytest.raises(DeadlineError):
        harness.client(f"tcp://127.0.0.1:{listener.getsockname()[1]}", deadline_ns=after(0.2))
    assert scaled(0.19) < elapsed.seconds < scaled(1)


def test_a_signal_that_comes_again_and_again_leaves_an_attempt_to_connect_its_time(harness: Harness) -> None:
    listener, fillers = full_backlog(harness)
    port = listener.getsockname()[1]
    others = attempts(port)
    first_seen: dict[int, float] = {}

    def one_lives_on() -> bool:
        now = time.monotonic()
        seen = attempts(port) - others
        for gone in set(first_seen) - seen:
            del first_seen[gone]
        return any(now - first_seen.setdefault(attempt, now) > LIVES_S for attempt in seen)

    outlived = threading.Event()

    def make_room() -> None:
        with contextlib.suppress(AssertionError):
            eventually(one_lives_on, "an attempt to connect outlives the signals", 5)
            outlived.set()
        for filler in fillers:
            filler.close()

    with accepting(harness, listener, before=make_room), alarms(0.001) as heard:
        client = harness.client(f"tcp://127.0.0.1:{port}")
    assert outlived.is_set()
    assert client.peer.boot_nonce == 7
    assert heard


def test_a_signal_does_not_end_the_wait_for_room_in_a_backlog(harness: Harness) -> None:
    name = f"full-{os.getpid()}"
    listener = harness.stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(f"\0ofl/{name}")
    listener.listen(0)
    harness.stack.enter_context(socket.socket(socket.AF_UNIX)).connect(f"\0ofl/{name}")
    with (
        alarms(scaled(0.05)) as heard,
        Elapsed() as elapsed,
        pytest.raises(DeadlineError, match="did not answer before the deadline"),
    ):
        harness.client(f"shm://{name}", deadline_ns=after(0.5))
    assert len(heard) > 1
    assert scaled(0.49) < elapsed.seconds < scaled(2)


def test_a_signal_that_comes_again_and_again_leaves_a_negotiation_its_time(harness: Harness) -> None:
    listener, endpoint = harness.listener()
    with accepting(harness, listener, pause_s=0.1), alarms(0.01) as heard:
        client = harness.client(endpoint)
    assert client.peer.boot_nonce == 7
    assert heard


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
