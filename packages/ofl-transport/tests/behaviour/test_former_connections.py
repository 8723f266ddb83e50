"""What was meant for a connection that is gone never lands in memory that a newer one uses."""

import pytest
from ofl.memory import Buffer
from transport_harness import Harness, answer, freeze, take, take_after_ends, thaw
from transport_times import eventually, soon

ROOM = 300_000
STALE = b"\xa5"
"""What peers/serve.py fills its replies with."""


def test_a_reply_to_a_call_of_a_former_connection_is_refused_and_lands_nowhere(harness: Harness) -> None:
    server, endpoint = harness.listening()
    buffer = Buffer(ROOM)
    former = harness.client(endpoint)
    former.register(buffer)
    former.submit([b"old"], deadline_ns=soon(), into=buffer.range())
    old = take(server)
    former.close()
    eventually(lambda: server.counters()["disconnects"] == 1, "the server sees the end")
    client = harness.client(endpoint)
    client.register(buffer)
    buffer.view[:] = b"m" * ROOM
    sequence = client.submit([b"new"], deadline_ns=soon(), into=buffer.range())
    new = take_after_ends(server)
    assert new.connection != old.connection
    # The number of the old call with the new connection is a call that this one never made.
    for connection, number in ((old.connection, old.sequence), (new.connection, new.sequence + 256)):
        assert server.reply(connection, number, [STALE * ROOM]) is False
    assert bytes(buffer.view) == b"m" * ROOM
    answer(server, new, b"new")
    assert bytes(client.wait(sequence, deadline_ns=soon())) == b"new"
    assert bytes(buffer.view[3:]) == b"m" * (ROOM - 3)


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_reply_under_way_to_a_connection_that_is_gone_never_lands(harness: Harness, end: str) -> None:
    process, endpoint = harness.served_process()
    buffer = Buffer(ROOM)
    for turn in range(5):
        former = harness.client(endpoint)
        former.register(buffer)
        buffer.view[:] = bytes(ROOM)
        freeze(process)
        former.submit([f"!bytes {ROOM}".encode()], deadline_ns=soon(), into=buffer.range())
        if end == "close":
            former.close()
        else:
            former.__del__()
        own = bytes([turn + 1]) * ROOM
        buffer.view[:] = own
        thaw(process)  # it reads the request, and answers if it has not seen the end yet
        client = harness.client(endpoint)
        client.register(buffer)
        for _ in range(3):
            sequence = client.submit([b"new"], deadline_ns=soon(), into=buffer.range(0, 3))
            assert bytes(client.wait(sequence, deadline_ns=soon())) == b"new"
        assert buffer.view[3:] == own[3:]
        client.close()
