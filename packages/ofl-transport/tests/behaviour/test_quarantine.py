"""Memory of a cancelled call: free at once where our own CPU places, quarantined where the peer's device writes.

Whatever the wire: once a call is settled its memory never changes again, and other memory never does.
"""

from contextlib import suppress

import pytest
from ofl.client import Client
from ofl.errors import CancelledError, DeadlineError, QuarantinedError
from ofl.memory import Buffer
from transport_backends import only_on
from transport_harness import Harness, answer, freeze, take, thaw
from transport_times import after, soon

ROOM = 300_000


def given_up(client: Client, buffer: Buffer, request: bytes) -> tuple[int, bool]:
    """A placed call into the first ROOM bytes that was cancelled at its deadline, and whether it is settled."""
    sequence = client.submit([request], deadline_ns=soon(), into=buffer.range(0, ROOM))
    with pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=after(0.05))
    return sequence, client.cancel(sequence)


@pytest.mark.smoke
def test_memory_that_was_given_up_is_never_written_once_it_is_settled(harness: Harness) -> None:
    server, endpoint = harness.served_process()
    buffer = Buffer(2 * ROOM)
    client = harness.client(endpoint)
    client.register(buffer)
    for turn in range(5):
        freeze(server)
        sequence, settled = given_up(client, buffer, f"!bytes {ROOM}".encode())
        assert settled is not harness.backend.one_sided
        with pytest.raises(CancelledError):
            client.wait(sequence, deadline_ns=soon())
        # The fallback goes to other memory, at once.
        fallback = client.submit([b"fallback"], deadline_ns=soon(), into=buffer.range(ROOM, ROOM))
        thaw(server)
        assert client.settled(sequence, deadline_ns=soon())
        own = bytes([turn + 1]) * ROOM
        buffer.view[:ROOM] = own
        assert bytes(client.wait(fallback, deadline_ns=soon())) == b"fallback"
        assert client.call([b"one more round"], deadline_ns=soon()) == b"one more round"
        assert buffer.view[:ROOM] == own
        assert client.settled(sequence, deadline_ns=0), "settled stays settled"


@only_on(lambda backend: backend.one_sided)
def test_quarantined_memory_is_refused_to_others_until_the_server_answers(harness: Harness) -> None:
    server, endpoint = harness.served_process()
    buffer = Buffer(2 * ROOM)
    client = harness.client(endpoint)
    client.register(buffer)
    freeze(server)
    sequence, settled = given_up(client, buffer, f"!bytes {ROOM}".encode())
    assert settled is False
    assert client.settled(sequence, deadline_ns=after(0.05)) is False
    for offset, size in ((0, ROOM), (ROOM - 1, 10), (10, 1), (0, 2 * ROOM)):
        with pytest.raises(QuarantinedError):
            client.submit([b"x"], deadline_ns=soon(), into=buffer.range(offset, size))
    thaw(server)
    assert client.settled(sequence, deadline_ns=soon())
    again = client.submit([b"again"], deadline_ns=soon(), into=buffer.range(0, ROOM))
    assert bytes(client.wait(again, deadline_ns=soon())) == b"again"


@only_on(lambda backend: backend.one_sided)
def test_memory_in_quarantine_on_one_connection_is_refused_on_another_until_it_is_settled(
    harness: Harness,
) -> None:
    frozen, endpoint = harness.served_process()
    _, other_endpoint = harness.echo()
    buffer = Buffer(2 * ROOM)
    client, other = harness.client(endpoint), harness.client(other_endpoint)
    client.register(buffer)
    other.register(buffer)
    freeze(frozen)
    sequence, settled = given_up(client, buffer, f"!bytes {ROOM}".encode())
    assert settled is False
    for offset, size in ((0, ROOM), (ROOM - 1, 10), (0, 2 * ROOM)):
        with pytest.raises(QuarantinedError, match="of this or another connection may still write"):
            other.submit([b"x"], deadline_ns=soon(), into=buffer.range(offset, size))
    beside = other.submit([b"beside"], deadline_ns=soon(), into=buffer.range(ROOM, ROOM))
    assert bytes(other.wait(beside, deadline_ns=soon())) == b"beside"
    thaw(frozen)
    assert client.settled(sequence, deadline_ns=soon())
    again = other.submit([b"again"], deadline_ns=soon(), into=buffer.range())
    assert bytes(other.wait(again, deadline_ns=soon())) == b"again"


@only_on(lambda backend: backend.one_sided)
def test_a_connection_that_ends_settles_what_it_had_in_quarantine(harness: Harness) -> None:
    server, endpoint = harness.served_process()
    buffer = Buffer(ROOM)
    client = harness.client(endpoint)
    client.register(buffer)
    freeze(server)
    sequence, settled = given_up(client, buffer, f"!bytes {ROOM}".encode())
    assert settled is False
    client.close()
    assert client.settled(sequence, deadline_ns=0)
    own = b"m" * ROOM
    buffer.view[:] = own
    thaw(server)  # its WRITE, if it posts one, meets a queue pair that is gone
    other = harness.client(endpoint)
    for _ in range(20):
        assert other.call([b"the server has gone on"], deadline_ns=soon()) == b"the server has gone on"
    assert buffer.view == own


@only_on(lambda backend: not backend.one_sided)
def test_a_reply_that_has_come_halfway_stops_where_it_is(harness: Harness) -> None:
    server, endpoint = harness.listening(max_frame_bytes=1 << 24)
    room = 1 << 24
    buffer = Buffer(room)
    client = harness.client(endpoint, max_frame_bytes=room)
    client.register(buffer)
    halfway = 0
    for _ in range(100):
        buffer.view[:] = bytes(room)
        sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
        # More than the wire holds, so that a part of it stays with the server; unless both ends' threads were faster.
        answer(server, take(server), b"r" * room)
        with suppress(DeadlineError):
            client.wait(sequence, deadline_ns=0)
            continue
        halfway += 1
        assert client.cancel(sequence)
        buffer.view[:] = b"m" * room
        other = client.submit([b"y"], deadline_ns=soon())
        answer(server, take(server), b"next")
        assert client.wait(other, deadline_ns=soon()) == b"next"
        assert buffer.view == b"m" * room
        if halfway == 3:
            return
    pytest.fail(f"of 100 replies {halfway} were caught halfway")


def test_cancelling_a_placed_call_that_was_answered_leaves_its_reply_and_frees_it(harness: Harness) -> None:
    server, endpoint = harness.listening()
    buffer = Buffer(1000)
    client = harness.client(endpoint)
    client.register(buffer)
    placed = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
    behind = client.submit([b"y"], deadline_ns=soon())
    for _ in range(2):
        answer(server, take(server), b"r" * 1000)
    assert client.wait(behind, deadline_ns=soon()) == b"r" * 1000
    assert client.cancel(placed) is True  # it came before: nothing is under way any more
    assert client.settled(placed, deadline_ns=0)
    buffer.view[:] = b"m" * 1000
    again = client.submit([b"z"], deadline_ns=soon(), into=buffer.range(0, 500))
    answer(server, take(server), b"z" * 500)
    assert client.wait(again, deadline_ns=soon()) == b"z" * 500
    assert buffer.view[500:] == b"m" * 500


def test_an_open_call_is_not_settled(harness: Harness) -> None:
    server, endpoint = harness.listening()
    buffer = Buffer(1000)
    client = harness.client(endpoint)
    client.register(buffer)
    sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
    with pytest.raises(ValueError, match="is open"):
        client.settled(sequence, deadline_ns=soon())
    answer(server, take(server), b"r")
    assert bytes(client.wait(sequence, deadline_ns=soon())) == b"r"
    assert client.settled(sequence, deadline_ns=0)


def test_more_cancelled_calls_than_there_are_slots_come_and_go(harness: Harness) -> None:
    _, endpoint = harness.echo()
    buffer = Buffer(8 * 10_000)
    client = harness.client(endpoint)
    client.register(buffer)
    for turn in range(1000):
        where = buffer.range(turn % 8 * 10_000, 10_000)
        sequence = client.submit([bytes(9000)], deadline_ns=soon(), into=where)
        if turn % 3:
            client.cancel(sequence)
            assert client.settled(sequence, deadline_ns=soon())
        else:
            assert client.wait(sequence, deadline_ns=soon()) == bytes(9000)
    assert client.call([b"still in order"], deadline_ns=soon()) == b"still in order"
