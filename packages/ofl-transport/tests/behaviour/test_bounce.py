"""Bounce buffers: the caller's memory changes inside `wait` and at no other time."""

from ofl.memory import Buffer
from transport_harness import Harness, answer, take
from transport_times import soon

POISON = b"\x5a"


def test_memory_is_untouched_until_the_reply_is_waited_for(harness: Harness) -> None:
    server, endpoint = harness.listening()
    memory = bytearray(POISON * 100_000)
    buffer = Buffer.of(memory, bounce=True)
    client = harness.client(endpoint)
    client.register(buffer)
    placed = client.submit([b"x"], deadline_ns=soon(), into=buffer.range(1000, 50_000))
    behind = client.submit([b"x"], deadline_ns=soon())
    for _ in range(2):
        answer(server, take(server), b"r" * 40_000)
    assert client.wait(behind, deadline_ns=soon()) == b"r" * 40_000  # so the placed one has arrived
    assert memory == POISON * 100_000
    assert client.wait(placed, deadline_ns=soon()) == b"r" * 40_000
    assert memory == POISON * 1000 + b"r" * 40_000 + POISON * 59_000


def test_memory_of_a_cancelled_call_is_never_touched(harness: Harness) -> None:
    server, endpoint = harness.listening()
    buffer = Buffer(50_000, bounce=True)
    buffer.view[:] = POISON * 50_000
    client = harness.client(endpoint)
    client.register(buffer)
    for late in (False, True):
        placed = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
        request = take(server)
        if not late:
            answer(server, request, b"r" * 50_000)
        client.cancel(placed)
        if late:
            server.reply(request.connection, request.sequence, [b"r" * 50_000])
        assert client.settled(placed, deadline_ns=soon())
        other = client.submit([b"y"], deadline_ns=soon())
        answer(server, take(server), b"next")
        assert client.wait(other, deadline_ns=soon()) == b"next"
        assert buffer.view == POISON * 50_000


def test_a_call_that_is_placed_after_another_sees_only_its_own_reply(harness: Harness) -> None:
    _, endpoint = harness.echo()
    buffer = Buffer(30_000, bounce=True)
    client = harness.client(endpoint)
    client.register(buffer)
    for turn in range(50):
        body = bytes([turn]) * (turn * 599 % 30_000 + 1)
        sequence = client.submit([body], deadline_ns=soon(), into=buffer.range(0, len(body)))
        assert client.wait(sequence, deadline_ns=soon()) == body
        assert buffer.view[: len(body)] == body


def test_a_bounce_buffer_lends_what_the_caller_wrote(harness: Harness) -> None:
    _, endpoint = harness.echo()
    buffer = Buffer(100_000, bounce=True)
    buffer.view[:] = b"mine" * 25_000
    client = harness.client(endpoint)
    client.register(buffer)
    sequence = client.submit([buffer.view], deadline_ns=soon(), lent=buffer)
    assert client.wait(sequence, deadline_ns=soon()) == b"mine" * 25_000
