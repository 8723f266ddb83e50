"""Children by the start method that the documents recommend: nothing of the parent's is theirs, and both go on."""

import multiprocessing
import pickle

import pytest
from ofl.memory import Buffer
from transport_harness import Harness, answer, take
from transport_spawned import place
from transport_times import scaled, soon, span_ns


def test_a_spawned_child_has_connections_and_memory_of_its_own(harness: Harness) -> None:
    server, endpoint = harness.listening()
    _, echo_endpoint = harness.echo()
    buffer = Buffer(100_000)
    client = harness.client(endpoint)
    client.register(buffer)
    buffer.view[:] = b"p" * 100_000
    sequence = client.submit([b"x"], deadline_ns=soon(), into=buffer.range())
    request = take(server)
    child = multiprocessing.get_context("spawn").Process(target=place, args=(echo_endpoint, 20, span_ns(60)))
    child.start()
    child.join(scaled(60))
    assert child.exitcode == 0
    assert buffer.view == b"p" * 100_000
    answer(server, request, b"r" * 100_000)
    assert client.wait(sequence, deadline_ns=soon()) == b"r" * 100_000
    assert server.counters()["disconnects"] == 0, "the child's end is not the parent's"


def test_no_handle_can_be_sent_to_a_spawned_child(harness: Harness) -> None:
    server, endpoint = harness.echo()
    client = harness.client(endpoint)
    with Buffer(100) as buffer:
        for handle in (client, server, buffer):
            with pytest.raises((TypeError, ValueError), match=r"pickle"):
                pickle.dumps(handle)
    assert client.call([b"unharmed"], deadline_ns=soon()) == b"unharmed"
