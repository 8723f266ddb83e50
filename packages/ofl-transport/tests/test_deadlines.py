"""Every wait ends at its deadline, by closing, or for a signal handler."""

import contextlib
import signal
import socket
import threading

import pytest
from ofl.errors import ClosedError, DeadlineError, TransportError
from ofl.interface import Request
from transport_harness import (
    HEADER,
    HEARTBEAT_TYPE,
    Elapsed,
    Harness,
    accept_frame,
    frame,
    in_tenths,
    read_frame,
    soon,
)


def test_connecting_to_a_listener_that_never_answers_ends_at_the_deadline(harness: Harness) -> None:
    _, endpoint = harness.listener()
    with Elapsed() as elapsed, pytest.raises(DeadlineError, match="did not answer"):
        harness.client(endpoint, deadline_ns=in_tenths(2))
    assert 0.19 < elapsed.seconds < 1


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
        harness.client(f"tcp://127.0.0.1:{name[1]}", deadline_ns=in_tenths(2))
    assert 0.19 < elapsed.seconds < 1


def test_a_past_deadline_never_waits(harness: Harness) -> None:
    server = harness.server()
    client = harness.client(server.listen("tcp://127.0.0.1:0"))
    sequence = client.submit([b"x"], deadline_ns=0)
    with Elapsed() as elapsed, pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=0)
    assert elapsed.seconds < 0.1
    server.next_event(deadline_ns=soon())
    with Elapsed() as elapsed:
        server.next_event(deadline_ns=0)
    assert elapsed.seconds < 0.1


def test_a_call_outlives_the_deadline_of_a_wait(harness: Harness) -> None:
    server = harness.server()
    client = harness.client(server.listen("tcp://127.0.0.1:0"))
    sequence = client.submit([b"slow"], deadline_ns=soon())
    with pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=in_tenths(1))
    server.next_event(deadline_ns=soon())
    request = server.next_event(deadline_ns=soon())
    assert isinstance(request, Request)
    assert server.reply(request.connection, request.sequence, [b"done"])
    assert client.wait(sequence, deadline_ns=soon()) == b"done"


def test_an_idle_server_returns_none_at_its_deadline(harness: Harness) -> None:
    server = harness.server()
    with Elapsed() as elapsed:
        assert server.next_event(deadline_ns=in_tenths(2)) is None
    assert 0.19 < elapsed.seconds < 1


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
        client.call([b"x"], deadline_ns=in_tenths(3))
    stop.set()
    thread.join(5)
    assert elapsed.seconds < 1


@pytest.mark.parametrize("step", ["accept", "header", "half header", "half accept"])
def test_a_server_that_stops_in_the_middle_of_negotiating_is_met_by_the_deadline(
    harness: Harness, step: str
) -> None:
    listener, endpoint = harness.listener()
    whole = accept_frame()
    sent = {"accept": 0, "half header": 10, "header": HEADER.size, "half accept": HEADER.size + 9}[step]
    held: list[socket.socket] = []

    def stall() -> None:
        connection, _ = listener.accept()
        held.append(connection)
        connection.sendall(whole[:sent])

    thread = threading.Thread(target=stall)
    thread.start()
    with Elapsed() as elapsed, pytest.raises(DeadlineError):
        harness.client(endpoint, deadline_ns=in_tenths(2))
    thread.join(5)
    held[0].close()
    assert elapsed.seconds < 1


def test_a_signal_handler_runs_while_waiting(harness: Harness) -> None:
    server = harness.server()
    client = harness.client(server.listen("tcp://127.0.0.1:0"))
    sequence = client.submit([b"x"], deadline_ns=soon())

    class Stop(Exception):
        pass

    def stop(_number: int, _frame: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for wait in (
            lambda: client.wait(sequence, deadline_ns=soon()),
            lambda: [server.next_event(deadline_ns=soon()) for _ in range(5)],
        ):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with Elapsed() as elapsed, pytest.raises(Stop):
                wait()
            assert elapsed.seconds < 1
    finally:
        signal.signal(signal.SIGALRM, before)


def test_closing_wakes_a_waiting_client(harness: Harness) -> None:
    server = harness.server()
    client = harness.client(server.listen("tcp://127.0.0.1:0"))
    sequence = client.submit([b"x"], deadline_ns=soon())
    threading.Timer(0.1, client.close).start()
    with Elapsed() as elapsed, pytest.raises(ClosedError):
        client.wait(sequence, deadline_ns=soon())
    assert elapsed.seconds < 1
    with pytest.raises(ClosedError):
        client.submit([b"x"], deadline_ns=soon())


def test_closing_wakes_a_waiting_server(harness: Harness) -> None:
    server = harness.server()
    threading.Timer(0.1, server.close).start()
    with Elapsed() as elapsed, pytest.raises(ClosedError):
        server.next_event(deadline_ns=soon())
    assert elapsed.seconds < 1
    with pytest.raises(ClosedError):
        server.next_event(deadline_ns=soon())
    with pytest.raises(TransportError):
        server.listen("tcp://127.0.0.1:0")


def test_waking_ends_one_wait(harness: Harness) -> None:
    server = harness.server()
    threading.Timer(0.1, server.wake).start()
    with Elapsed() as elapsed:
        assert server.next_event(deadline_ns=soon()) is None
    assert elapsed.seconds < 1
    with Elapsed() as elapsed:
        assert server.next_event(deadline_ns=in_tenths(1)) is None
    assert elapsed.seconds > 0.09
