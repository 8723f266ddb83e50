"""Memory is registered before it is used, on every wire: a program that forgot is told so before it meets a device."""

import pytest
from ofl.memory import Buffer
from transport_harness import Harness, answer, take
from transport_times import soon

UNREGISTERED = "not registered with this connection"


@pytest.mark.parametrize("bounce", [False, True])
def test_an_unregistered_buffer_is_no_place_for_a_reply(harness: Harness, bounce: bool) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    with Buffer(1000, bounce=bounce) as buffer:
        with pytest.raises(ValueError, match=UNREGISTERED):
            client.submit([b"refused"], deadline_ns=soon(), into=buffer.range())
        client.register(buffer)
        client.register(buffer)  # twice is harmless
        sequence = client.submit([b"taken"], deadline_ns=soon(), into=buffer.range())
        request = take(server)
        assert bytes(request.body) == b"taken", "nothing of the refused one was sent"
        answer(server, request, b"placed")
        assert bytes(client.wait(sequence, deadline_ns=soon())) == b"placed"


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_unregistered_buffer_is_not_lent_to_a_request(harness: Harness, size: int) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    with Buffer(size) as buffer:
        with pytest.raises(ValueError, match=UNREGISTERED):
            client.submit([buffer.view], deadline_ns=soon(), lent=buffer)
        client.register(buffer)
        sequence = client.submit([buffer.view], deadline_ns=soon(), lent=buffer)
        request = take(server)
        assert request.body == bytes(size)
        answer(server, request, b"taken")
        assert client.wait(sequence, deadline_ns=soon()) == b"taken"


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_unregistered_buffer_is_not_lent_to_a_reply_and_the_call_stays_open(
    harness: Harness, size: int
) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    sequence = client.submit([b"x"], deadline_ns=soon())
    request = take(server)
    with Buffer(size) as buffer:
        with pytest.raises(ValueError, match="not registered with this server"):
            server.reply(request.connection, request.sequence, [buffer.view], lent=buffer)
        server.register(buffer)
        assert server.reply(request.connection, request.sequence, [buffer.view], lent=buffer)
        assert client.wait(sequence, deadline_ns=soon()) == bytes(size)
        assert server.idle(buffer, deadline_ns=soon())


def test_what_one_connection_registered_serves_the_others_of_its_wire(harness: Harness) -> None:
    _, endpoint = harness.echo()
    first, second = harness.client(endpoint), harness.client(endpoint)
    with Buffer(1000) as buffer:
        first.register(buffer)
        first.close()
        sequence = second.submit([b"x" * 1000], deadline_ns=soon(), into=buffer.range())
        assert second.wait(sequence, deadline_ns=soon()) == b"x" * 1000
