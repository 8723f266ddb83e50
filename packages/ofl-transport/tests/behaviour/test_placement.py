"""Direct placement: a reply lands in the range that the caller chose, whole, and nowhere else."""

import array
import mmap
import os
import random
import threading
from collections.abc import Callable
from typing import Unpack

import pytest
from ofl.client import Client
from ofl.errors import DeadlineError, FrameTooLargeError, OverlapError, PeerLostError
from ofl.memory import Buffer
from transport_backends import only_on
from transport_harness import ClientOptions, Harness, answer, take, take_after_ends
from transport_times import soon

POISON = b"\x5a"
MARGIN = 4099
"""Odd, so that a range begins at no boundary of anything."""

LARGE = 13_000_000
SIZES = [0, 1, 4096, 4097, 16383, 16384, 16385, 32768, 65535, 65536, 65537, 1 << 20, LARGE]


def poisoned(size: int) -> Buffer:
    buffer = Buffer(size)
    buffer.view[:] = POISON * size
    return buffer


def placing(harness: Harness, endpoint: str, buffer: Buffer, **options: Unpack[ClientOptions]) -> Client:
    client = harness.client(endpoint, **options)
    client.register(buffer)
    return client


@pytest.mark.parametrize("size", SIZES)
def test_a_reply_lands_in_its_range_and_nowhere_else(harness: Harness, size: int) -> None:
    _, endpoint = harness.echo(max_frame_bytes=1 << 24)
    buffer = poisoned(size + 2 * MARGIN)
    client = placing(harness, endpoint, buffer, max_frame_bytes=1 << 24)
    body = random.Random(size).randbytes(size)
    where = buffer.range(MARGIN, max(size, 1))
    placed = client.wait(client.submit([body], deadline_ns=soon(), into=where), deadline_ns=soon())
    assert isinstance(placed, memoryview)
    assert placed == body
    assert buffer.view[MARGIN : MARGIN + size] == body
    assert buffer.view[:MARGIN] == POISON * MARGIN
    assert buffer.view[MARGIN + size :] == POISON * MARGIN


@pytest.mark.parametrize("size", [0, 1, 20_000])
def test_the_rest_of_a_range_that_is_larger_than_its_reply_stays_as_it_was(
    harness: Harness, size: int
) -> None:
    _, endpoint = harness.echo()
    buffer = poisoned(70_000)
    client = placing(harness, endpoint, buffer)
    sequence = client.submit([b"r" * size], deadline_ns=soon(), into=buffer.range(5, 60_000))
    assert client.wait(sequence, deadline_ns=soon()) == b"r" * size
    assert buffer.view[:5] == POISON * 5
    assert buffer.view[5 + size :] == POISON * (70_000 - 5 - size)


def test_the_server_learns_how_much_fits_and_a_larger_reply_is_refused_to_it(harness: Harness) -> None:
    server, endpoint = harness.listening()
    buffer = poisoned(200_000)
    client = placing(harness, endpoint, buffer)
    for room in (1, 100, 16384, 100_000):
        sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range(0, room))
        request = take(server)
        assert bytes(request.body) == b"x"
        assert request.max_reply_bytes == room
        with pytest.raises(FrameTooLargeError, match=f"reply of {room + 1} bytes"):
            server.reply(request.connection, request.sequence, [b"r" * (room + 1)])
        answer(server, request, b"r" * room)
        assert client.wait(sequence, deadline_ns=soon()) == b"r" * room
        assert buffer.view[room:] == POISON * (200_000 - room)


@only_on(lambda backend: not backend.one_sided)  # a device would pin all of it
def test_a_range_larger_than_any_reply_takes_the_largest(harness: Harness) -> None:
    server, endpoint = harness.listening(max_frame_bytes=50_000)
    memory = os.memfd_create("ofl-test")
    os.ftruncate(memory, (4 << 30) + 4096)  # none of it is there before it is touched
    with mmap.mmap(memory, 0) as mapped, Buffer.of(mapped) as buffer:
        os.close(memory)
        client = placing(harness, endpoint, buffer)
        for room in (50_001, 4 << 30, (4 << 30) + 100):
            sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range(0, room))
            request = take(server)
            assert request.max_reply_bytes == 50_000
            answer(server, request, b"r" * 50_000)
            assert client.wait(sequence, deadline_ns=soon()) == b"r" * 50_000


def test_a_placed_request_may_be_as_large_as_any_other(harness: Harness) -> None:
    server, endpoint = harness.listening(max_frame_bytes=50_000)
    buffer = Buffer(100_000)
    client = placing(harness, endpoint, buffer, max_frame_bytes=50_000)
    with pytest.raises(FrameTooLargeError):
        client.submit([bytes(50_001)], deadline_ns=soon(), into=buffer.range())
    sequence = client.submit([b"q" * 50_000], deadline_ns=soon(), into=buffer.range())
    request = take(server)
    assert bytes(request.body) == b"q" * 50_000
    assert request.max_reply_bytes == 50_000
    with pytest.raises(FrameTooLargeError):
        server.reply(request.connection, request.sequence, [bytes(50_001)])
    answer(server, request, b"r" * 50_000)
    assert client.wait(sequence, deadline_ns=soon()) == b"r" * 50_000


@pytest.mark.smoke
def test_as_many_placed_calls_as_may_be_open_find_their_own_ranges(harness: Harness) -> None:
    server, endpoint = harness.listening()
    calls, room = 256, 5000
    buffer = poisoned(calls * room)
    client = placing(harness, endpoint, buffer)
    bodies = [random.Random(index).randbytes(room - index) for index in range(calls)]
    sequences = [
        client.submit([body], deadline_ns=soon(), into=buffer.range(index * room, room))
        for index, body in enumerate(bodies)
    ]
    requests = [take(server) for _ in bodies]
    random.Random(1).shuffle(requests)
    for request in requests:
        answer(server, request, bytes(request.body))
    for index in random.Random(2).sample(range(calls), calls):
        assert client.wait(sequences[index], deadline_ns=soon()) == bodies[index]
    for index, body in enumerate(bodies):
        end = (index + 1) * room
        assert buffer.view[end - room : end - index] == body
        assert buffer.view[end - index : end] == POISON * index


def test_placed_and_plain_calls_mix(harness: Harness) -> None:
    _, endpoint = harness.echo()
    buffer = Buffer(50 * 3000)
    client = placing(harness, endpoint, buffer)
    for _ in range(5):
        placed = [
            client.submit([bytes([n]) * 3000], deadline_ns=soon(), into=buffer.range(n * 3000, 3000))
            for n in range(50)
        ]
        plain = [client.submit([bytes([100 + n]) * 3000], deadline_ns=soon()) for n in range(50)]
        for n in range(50):
            assert client.wait(plain[n], deadline_ns=soon()) == bytes([100 + n]) * 3000
            assert client.wait(placed[n], deadline_ns=soon()) == bytes([n]) * 3000


@pytest.mark.parametrize(("offset", "size"), [(100, 200), (0, 101), (299, 1), (0, 1000), (150, 10)])
def test_a_range_that_shares_a_byte_with_an_open_call_is_refused(
    harness: Harness, offset: int, size: int
) -> None:
    server, endpoint = harness.listening()
    buffer = Buffer(1000)
    client = placing(harness, endpoint, buffer)
    first = client.submit([b"first"], deadline_ns=soon(), into=buffer.range(100, 200))
    with pytest.raises(OverlapError):
        client.submit([b"second"], deadline_ns=soon(), into=buffer.range(offset, size))
    neighbours = [
        client.submit([b"neighbour"], deadline_ns=soon(), into=buffer.range(*where))
        for where in ((0, 100), (300, 700))
    ]
    for _ in range(3):
        request = take(server)
        answer(server, request, bytes(request.body))
    assert bytes(client.wait(first, deadline_ns=soon())) == b"first"
    for sequence in neighbours:
        assert bytes(client.wait(sequence, deadline_ns=soon())) == b"neighbour"
    again = client.submit([b"again"], deadline_ns=soon(), into=buffer.range(offset, size))
    client.cancel(again)


def test_a_placed_call_outlives_the_deadline_of_a_wait(harness: Harness) -> None:
    server, endpoint = harness.listening()
    buffer = Buffer(1000)
    client = placing(harness, endpoint, buffer)
    sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
    with pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=0)
    answer(server, take(server), b"late")
    assert bytes(client.wait(sequence, deadline_ns=soon())) == b"late"


@pytest.mark.parametrize(
    "make", [bytearray, lambda n: mmap.mmap(-1, n), lambda n: array.array("d", bytes(n))]
)
def test_memory_of_the_callers_own_is_placed_into(harness: Harness, make: Callable[[int], bytearray]) -> None:
    _, endpoint = harness.echo()
    memory = make(80_000)
    buffer = Buffer.of(memory)
    client = placing(harness, endpoint, buffer)
    body = random.Random(3).randbytes(40_000)
    sequence = client.submit([body], deadline_ns=soon(), into=buffer.range(8000, 40_000))
    assert client.wait(sequence, deadline_ns=soon()) == body
    assert memoryview(memory).cast("B")[8000:48_000] == body


def test_memory_of_the_callers_own_stays_where_it_is_while_it_is_used(harness: Harness) -> None:
    server, endpoint = harness.listening()
    memory = bytearray(1000)
    buffer = Buffer.of(memory)
    client = placing(harness, endpoint, buffer)
    sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
    buffer.close()
    with pytest.raises(BufferError):
        memory.extend(b"would move it")
    answer(server, take(server), b"r" * 1000)
    assert client.wait(sequence, deadline_ns=soon()) == b"r" * 1000
    assert memory == b"r" * 1000


def test_memory_that_cannot_be_placed_into_is_refused() -> None:
    with pytest.raises(TypeError):
        Buffer.of(b"read-only")
    with pytest.raises(ValueError, match="at least one byte"):
        Buffer.of(bytearray())
    with pytest.raises(ValueError, match="at least one byte"):
        Buffer(0)
    for offset, size in ((0, 101), (101, 1), (-1, 1), (50, 51), (0, 0)):
        with pytest.raises(ValueError, match="do not lie in a buffer of 100"):
            Buffer(100).range(offset, size)


def test_a_buffer_may_be_closed_while_calls_are_open(harness: Harness) -> None:
    server, endpoint = harness.listening()
    buffer = Buffer(200_000)
    client = placing(harness, endpoint, buffer)
    placed = client.submit([b"x"], deadline_ns=soon(), into=buffer.range(0, 100_000))
    cancelled = client.submit([b"x"], deadline_ns=soon(), into=buffer.range(100_000, 100_000))
    buffer.close()
    del buffer
    for _ in range(2):
        answer(server, take(server), b"r" * 100_000)
    assert client.wait(placed, deadline_ns=soon()) == b"r" * 100_000
    client.cancel(cancelled)
    assert client.settled(cancelled, deadline_ns=soon())


def test_connections_share_a_buffer_and_one_that_ends_leaves_it_to_the_other(harness: Harness) -> None:
    _, endpoint = harness.echo()
    buffer = Buffer(2000)
    first, second = placing(harness, endpoint, buffer), placing(harness, endpoint, buffer)
    for client, start in ((first, 0), (second, 1000)):
        sequence = client.submit([b"a" * 1000], deadline_ns=soon(), into=buffer.range(start, 1000))
        assert client.wait(sequence, deadline_ns=soon()) == b"a" * 1000
    first.close()
    sequence = second.submit([b"b" * 2000], deadline_ns=soon(), into=buffer.range())
    assert second.wait(sequence, deadline_ns=soon()) == b"b" * 2000


@pytest.mark.parametrize("end", ["reply", "cancel", "close"])
def test_a_range_belongs_to_one_call_of_all_connections(harness: Harness, end: str) -> None:
    server, endpoint = harness.listening()
    buffer = Buffer(1000)
    first, second = placing(harness, endpoint, buffer), placing(harness, endpoint, buffer)
    owner = first.submit([b"owner"], deadline_ns=soon(), into=buffer.range(100, 200))
    request = take(server)
    for offset, size in ((100, 200), (0, 101), (299, 1), (0, 1000)):
        with pytest.raises(OverlapError, match="of this or another connection, owns a part"):
            second.submit([b"second"], deadline_ns=soon(), into=buffer.range(offset, size))
    beside = second.submit([b"beside"], deadline_ns=soon(), into=buffer.range(300, 700))
    answer(server, take(server), b"beside")
    assert bytes(second.wait(beside, deadline_ns=soon())) == b"beside"
    if end == "reply":
        answer(server, request, b"owner")
        assert bytes(first.wait(owner, deadline_ns=soon())) == b"owner"
    elif end == "cancel":
        assert first.cancel(owner) or first.settled(owner, deadline_ns=soon())
    else:
        first.close()
    again = second.submit([b"again"], deadline_ns=soon(), into=buffer.range())
    answer(server, take_after_ends(server), b"again")
    assert bytes(second.wait(again, deadline_ns=soon())) == b"again"


def test_a_connection_that_is_lost_owns_no_memory(harness: Harness) -> None:
    process, lost_endpoint = harness.served_process()
    _, endpoint = harness.echo()
    buffer = Buffer(1000)
    first, second = placing(harness, lost_endpoint, buffer), placing(harness, endpoint, buffer)
    sequence = first.submit([b"!hold"], deadline_ns=soon(), into=buffer.range())
    process.kill()
    with pytest.raises(PeerLostError):
        first.wait(sequence, deadline_ns=soon())
    # Neither cancelled nor closed: a program that reconnects goes on with the memory that it has.
    again = second.submit([b"again"], deadline_ns=soon(), into=buffer.range())
    assert bytes(second.wait(again, deadline_ns=soon())) == b"again"


def test_threads_with_connections_of_their_own_share_a_buffer(harness: Harness) -> None:
    _, endpoint = harness.echo()
    room, threads = 40_000, 4
    buffer = Buffer(threads * room)
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            client = placing(harness, endpoint, buffer)
            where = buffer.range(index * room, room)
            chance = random.Random(index)
            for _ in range(50):
                body = chance.randbytes(chance.randrange(room))
                placed = client.wait(
                    client.submit([body], deadline_ns=soon(), into=where), deadline_ns=soon()
                )
                assert placed == body
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
