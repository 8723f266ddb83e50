"""Memory lent to a request or a reply is sent as it lies, and is the caller's again when the library says so."""

import random
import threading

import pytest
from ofl.errors import ClosedError
from ofl.memory import Buffer
from transport_harness import Harness, answer, take
from transport_times import after, soon

LARGE = 13_000_000


def filled(size: int, seed: int) -> Buffer:
    buffer = Buffer(size)
    buffer.view[:] = random.Random(seed).randbytes(size)
    return buffer


@pytest.mark.parametrize("size", [1, 4096, 16384, 16385, 65537, 1 << 20, LARGE])
def test_a_lent_request_arrives_whole(harness: Harness, size: int) -> None:
    server, endpoint = harness.listening(max_frame_bytes=1 << 24)
    buffer = filled(size, 1)
    client = harness.client(endpoint, max_frame_bytes=1 << 24)
    client.register(buffer)
    sequence = client.submit([buffer.view], deadline_ns=soon(), lent=buffer)
    request = take(server)
    assert request.body == buffer.view
    answer(server, request, b"taken")
    assert client.wait(sequence, deadline_ns=soon()) == b"taken"


def test_parts_in_and_beside_the_lent_buffer_arrive_in_their_order(harness: Harness) -> None:
    _, endpoint = harness.echo()
    buffer = filled(200_000, 2)
    client = harness.client(endpoint)
    client.register(buffer)
    parts: list[bytes | memoryview] = [
        b"head",
        buffer.view[10:50_010],
        bytes(20_000),
        buffer.view[100_000:],
        buffer.view[:1],
        b"",
        b"tail" * 3000,
    ]
    sequence = client.submit(parts, deadline_ns=soon(), lent=buffer)
    assert client.wait(sequence, deadline_ns=soon()) == b"".join(parts)


def test_a_buffer_may_be_lent_and_placed_into_by_one_call(harness: Harness) -> None:
    _, endpoint = harness.echo()
    buffer = filled(200_000, 3)
    client = harness.client(endpoint)
    client.register(buffer)
    sent = bytes(buffer.view[:90_000])
    where = buffer.range(100_000, 90_000)
    sequence = client.submit([buffer.view[:90_000]], deadline_ns=soon(), into=where, lent=buffer)
    assert client.wait(sequence, deadline_ns=soon()) == sent
    assert buffer.view[:90_000] == sent


@pytest.mark.parametrize("size", [5000, 16385, 1 << 20, LARGE])
@pytest.mark.parametrize("placed", [False, True], ids=["plain", "placed"])
def test_a_lent_reply_may_be_overwritten_once_it_is_idle(harness: Harness, size: int, placed: bool) -> None:
    server, endpoint = harness.listening(max_frame_bytes=1 << 24)
    lent, room = filled(size, 4), Buffer(size)
    server.register(lent)
    client = harness.client(endpoint, max_frame_bytes=1 << 24)
    client.register(room)
    into = room.range() if placed else None
    sequence = client.submit([b"x"], deadline_ns=soon(), into=into)
    request = take(server)
    whole = bytes(lent.view)
    reply: list[object] = []
    # Somebody must take a reply that is larger than the wire before it can be idle.
    waiter = threading.Thread(target=lambda: reply.append(client.wait(sequence, deadline_ns=soon())))
    waiter.start()
    assert server.reply(request.connection, request.sequence, [lent.view], lent=lent)
    assert server.idle(lent, deadline_ns=soon())
    lent.view[:] = bytes(size)
    waiter.join()
    assert reply[0] == whole


def test_one_lent_buffer_serves_many_replies_at_once(harness: Harness) -> None:
    server, endpoint = harness.listening()
    lent = filled(1 << 20, 5)
    server.register(lent)
    client = harness.client(endpoint)
    sequences = [client.submit([b"x"], deadline_ns=soon()) for _ in range(100)]
    stretches = []
    for index in range(100):
        request = take(server)
        stretch = lent.view[index * 10_000 : index * 10_000 + 9000]
        stretches.append(bytes(stretch))
        assert server.reply(request.connection, request.sequence, [b"head", stretch], lent=lent)
    for sequence, sent in zip(sequences, stretches, strict=True):
        assert client.wait(sequence, deadline_ns=soon()) == b"head" + sent
    assert server.idle(lent, deadline_ns=soon())


def test_a_buffer_that_was_never_lent_is_idle(harness: Harness) -> None:
    server, _ = harness.listening()
    assert server.idle(Buffer(10), deadline_ns=0)


def test_a_lent_buffer_is_idle_once_the_client_that_should_have_read_it_is_gone(harness: Harness) -> None:
    server, endpoint = harness.listening(max_frame_bytes=1 << 24)
    lent = filled(LARGE, 6)
    server.register(lent)
    client = harness.client(endpoint, max_frame_bytes=1 << 24)
    client.submit([b"x"], deadline_ns=soon())
    request = take(server)
    assert server.reply(request.connection, request.sequence, [lent.view], lent=lent)
    client.close()
    assert server.idle(lent, deadline_ns=soon())


def test_a_closed_server_has_nothing_to_be_idle(harness: Harness) -> None:
    server, _ = harness.listening()
    server.close()
    with pytest.raises(ClosedError):
        server.idle(Buffer(10), deadline_ns=soon())


def test_a_cancelled_lent_request_gives_its_memory_back(harness: Harness) -> None:
    server, endpoint = harness.listening()
    buffer = filled(500_000, 7)
    client = harness.client(endpoint)
    client.register(buffer)
    sequence = client.submit([buffer.view], deadline_ns=soon(), lent=buffer)
    sent = bytes(buffer.view)
    client.cancel(sequence)
    assert client.settled(sequence, deadline_ns=after(20))
    buffer.view[:] = bytes(500_000)
    other = client.submit([b"behind it"], deadline_ns=soon())
    # The server may have heard of the cancel before it handed the request out, or after.
    request = take(server)
    if len(request.body) == len(sent):
        assert request.body == sent
        request = take(server)
    assert bytes(request.body) == b"behind it"
    answer(server, request, b"in order")
    assert bytes(client.wait(other, deadline_ns=soon())) == b"in order"
