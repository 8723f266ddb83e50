"""Cancelled calls: the reply is dropped, the server learns of it, and the slot is free for another call."""

import pytest
from ofl.errors import CancelledError, DeadlineError, TransportError
from ofl.interface import Connected
from transport_harness import Harness, answer, take
from transport_times import eventually, soon


def test_the_reply_to_a_cancelled_call_is_dropped(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    for size in (5, 100_000):
        cancelled = client.submit([b"first"], deadline_ns=soon())
        answer(server, take(server), b"i" * size)
        client.cancel(cancelled)
        with pytest.raises(CancelledError, match=f"call {cancelled} is not open"):
            client.wait(cancelled, deadline_ns=soon())
        kept = client.submit([b"second"], deadline_ns=soon())
        answer(server, take(server), b"kept")
        assert client.wait(kept, deadline_ns=soon()) == b"kept"


def test_the_server_is_told_of_a_cancel(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    sequence = client.submit([b"x"], deadline_ns=soon())
    request = take(server)
    client.cancel(sequence)
    eventually(lambda: server.counters()["cancels"] == 1, "the cancel arrives")
    assert server.reply(request.connection, request.sequence, [b"too late"]) is False
    assert server.counters()["replies_dropped"] == 1


def test_a_request_cancelled_before_it_is_taken_never_reaches_the_consumer(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    client.cancel(client.submit([b"unwanted"], deadline_ns=soon()))
    client.submit([b"wanted"], deadline_ns=soon())
    eventually(lambda: server.counters()["requests"] == 2, "both requests arrive")
    assert bytes(take(server).body) == b"wanted"


def test_call_cancels_at_its_deadline(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    with pytest.raises(DeadlineError):
        client.call([b"x"], deadline_ns=0)
    eventually(lambda: server.counters()["cancels"] == 1, "the cancel arrives")


def test_cancelling_twice_or_after_the_reply_is_harmless(harness: Harness) -> None:
    server, endpoint = harness.echo()
    client = harness.client(endpoint)
    sequence = client.submit([b"x"], deadline_ns=soon())
    assert client.wait(sequence, deadline_ns=soon()) == b"x"
    client.cancel(sequence)
    client.cancel(sequence)
    client.cancel(12345)
    assert client.call([b"y"], deadline_ns=soon()) == b"y"
    assert server.counters()["cancels"] == 0


def test_open_calls_are_bounded_by_what_was_agreed(harness: Harness) -> None:
    _, endpoint = harness.listening(max_calls=3)
    client = harness.client(endpoint)
    sequences = [client.submit([b"x"], deadline_ns=soon()) for _ in range(3)]
    with pytest.raises(TransportError, match="3 calls are open"):
        client.submit([b"x"], deadline_ns=soon())
    client.cancel(sequences[1])
    client.submit([b"fits again"], deadline_ns=soon())


def test_slots_are_reused_over_thousands_of_calls_with_some_left_open(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    held = client.submit([b"held"], deadline_ns=soon())
    first = take(server)
    for index in range(2000):
        sequence = client.submit([index.to_bytes(4, "little")], deadline_ns=soon())
        request = take(server)
        if index % 7 == 0:
            client.cancel(sequence)
            continue
        answer(server, request, bytes(request.body))
        assert client.wait(sequence, deadline_ns=soon()) == index.to_bytes(4, "little")
    answer(server, first, b"at last")
    assert client.wait(held, deadline_ns=soon()) == b"at last"
