"""Every wait ends at its deadline, by closing, or for a signal handler."""

import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest
from ofl.errors import ClosedError, DeadlineError, TransportError
from ofl.interface import Connected, Request
from transport_backends import only_on
from transport_frames import HEADER, accept_frame
from transport_harness import Harness, freeze, take, thaw
from transport_times import Elapsed, after, scaled, soon, span_ns

LATE_S = 1.0
"""Beyond its deadline a wait may take this much longer on a busy machine; without one it takes 20 s."""


def test_connecting_to_a_listener_that_never_answers_ends_at_the_deadline(harness: Harness) -> None:
    _, endpoint = harness.listener()
    with Elapsed() as elapsed, pytest.raises(DeadlineError, match="did not answer"):
        harness.client(endpoint, deadline_ns=after(0.2))
    assert scaled(0.19) < elapsed.seconds < scaled(0.2 + LATE_S)


def stalls_after(harness: Harness, said: bytes) -> None:
    """A client meets its deadline where the server says no more than this."""
    listener, endpoint = harness.listener()
    held: list[socket.socket] = []

    def stall() -> None:
        connection, _ = listener.accept()
        held.append(connection)
        connection.sendall(said)

    thread = threading.Thread(target=stall)
    thread.start()
    with Elapsed() as elapsed, pytest.raises(DeadlineError):
        harness.client(endpoint, deadline_ns=after(0.2))
    thread.join()
    held[0].close()
    assert elapsed.seconds < scaled(0.2 + LATE_S)


@pytest.mark.parametrize("step", ["nothing", "half header", "header", "half accept"])
def test_a_server_that_stops_in_the_middle_of_negotiating_is_met_by_the_deadline(
    harness: Harness, step: str
) -> None:
    cut = {"nothing": 0, "half header": 10, "header": HEADER.size, "half accept": HEADER.size + 9}[step]
    stalls_after(harness, accept_frame(transport=harness.backend.number)[:cut])


@only_on(lambda backend: backend.name != "tcp")
def test_a_server_that_stops_before_its_link_frame_is_met_by_the_deadline(harness: Harness) -> None:
    stalls_after(harness, accept_frame(transport=harness.backend.number))


def quickest(call: Callable[[], object]) -> float:
    """The seconds of the quickest of five: a busy machine may hold one up, and what waits holds up all."""
    seconds = []
    for _ in range(5):
        with Elapsed() as elapsed:
            call()
        seconds.append(elapsed.seconds)
    return min(seconds)


def test_a_past_deadline_never_waits(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    sequence = client.submit([b"x"], deadline_ns=0)

    def wait() -> None:
        with pytest.raises(DeadlineError):
            client.wait(sequence, deadline_ns=0)

    assert quickest(wait) < scaled(0.1)
    take(server)
    assert quickest(lambda: server.next_event(deadline_ns=0)) < scaled(0.1)


def test_a_call_outlives_the_deadline_of_a_wait(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    sequence = client.submit([b"slow"], deadline_ns=soon())
    with pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=after(0.1))
    server.next_event(deadline_ns=soon())
    request = server.next_event(deadline_ns=soon())
    assert isinstance(request, Request)
    assert server.reply(request.connection, request.sequence, [b"done"])
    assert client.wait(sequence, deadline_ns=soon()) == b"done"


def test_an_idle_server_returns_none_at_its_deadline(harness: Harness) -> None:
    server, _ = harness.listening()
    with Elapsed() as elapsed:
        assert server.next_event(deadline_ns=after(0.2)) is None
    assert scaled(0.19) < elapsed.seconds < scaled(0.2 + LATE_S)


def test_a_signal_handler_runs_while_waiting(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
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
            signal.setitimer(signal.ITIMER_REAL, scaled(0.1))
            with Elapsed() as elapsed, pytest.raises(Stop):
                wait()
            assert elapsed.seconds < scaled(0.1 + LATE_S)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_closing_wakes_a_waiting_client(harness: Harness) -> None:
    _, endpoint = harness.listening()
    client = harness.client(endpoint)
    sequence = client.submit([b"x"], deadline_ns=soon())
    threading.Timer(scaled(0.1), client.close).start()
    with Elapsed() as elapsed, pytest.raises(ClosedError):
        client.wait(sequence, deadline_ns=soon())
    assert elapsed.seconds < scaled(0.1 + LATE_S)
    with pytest.raises(ClosedError):
        client.submit([b"x"], deadline_ns=soon())


def test_closing_wakes_a_client_that_sends_to_a_server_that_does_not_read(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint, max_frame_bytes=1 << 26)
    freeze(process)
    threading.Timer(scaled(0.2), client.close).start()
    with Elapsed() as elapsed, pytest.raises(ClosedError):
        client.submit([bytes(1 << 26)], deadline_ns=soon())
    assert elapsed.seconds < scaled(0.2 + LATE_S)


def test_closing_wakes_a_waiting_server(harness: Harness) -> None:
    server, _ = harness.listening()
    threading.Timer(scaled(0.1), server.close).start()
    with Elapsed() as elapsed, pytest.raises(ClosedError):
        server.next_event(deadline_ns=soon())
    assert elapsed.seconds < scaled(0.1 + LATE_S)
    with pytest.raises(ClosedError):
        server.next_event(deadline_ns=soon())
    with pytest.raises(TransportError):
        server.listen(harness.backend.fresh())


def test_waking_ends_one_wait(harness: Harness) -> None:
    server, _ = harness.listening()
    threading.Timer(scaled(0.1), server.wake).start()
    with Elapsed() as elapsed:
        assert server.next_event(deadline_ns=soon()) is None
    assert elapsed.seconds < scaled(0.1 + LATE_S)
    with Elapsed() as elapsed:
        assert server.next_event(deadline_ns=after(0.1)) is None
    assert elapsed.seconds > scaled(0.09)


def test_waking_comes_before_what_is_asked_for(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    for _ in range(3):
        client.submit([b"x"], deadline_ns=soon())
    assert isinstance(server.next_event(deadline_ns=soon()), Request)
    server.wake()
    assert server.next_event(deadline_ns=soon()) is None
    for _ in range(2):
        assert isinstance(server.next_event(deadline_ns=soon()), Request)


def test_sending_to_a_frozen_server_ends_at_the_deadline(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint, max_frame_bytes=1 << 26)
    freeze(process)
    with Elapsed() as elapsed, pytest.raises(DeadlineError):
        client.submit([bytes(1 << 26)], deadline_ns=after(0.3))
    assert elapsed.seconds < scaled(0.3 + LATE_S)
    assert not client.alive  # half a frame cannot be taken back


def test_a_frozen_server_meets_the_deadline_first_if_that_is_nearer(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint)
    freeze(process)
    with pytest.raises(DeadlineError):
        client.call([b"x"], deadline_ns=after(0.1))
    thaw(process)
    assert client.call([b"y"], deadline_ns=soon()) == b"y"


def test_a_server_that_is_frozen_before_it_accepts_is_met_by_the_deadline(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    freeze(process)
    with Elapsed() as elapsed, pytest.raises(DeadlineError, match="did not answer"):
        harness.client(endpoint, deadline_ns=after(0.2))
    assert elapsed.seconds < scaled(0.2 + LATE_S)
    thaw(process)
    assert harness.client(endpoint).call([b"awake"], deadline_ns=soon()) == b"awake"


def test_an_answer_that_arrived_counts_even_if_the_deadline_passed_before_it_was_looked_at(
    harness: Harness,
) -> None:
    _, endpoint = harness.echo()
    client = harness.client(endpoint)
    sequence = client.submit([b"there"], deadline_ns=soon())
    probe = client.submit([b"behind it"], deadline_ns=soon())
    assert client.wait(probe, deadline_ns=soon()) == b"behind it"
    assert client.wait(sequence, deadline_ns=time.monotonic_ns() - span_ns(1)) == b"there"
