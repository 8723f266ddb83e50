"""A key of memory that was given back: whoever still has it, from a former connection, writes nowhere with it."""

import gc
from collections.abc import Iterator

import pytest
from ofl.memory import Buffer
from rdma.second_opinion.records import PlacementRecord
from rdma.second_opinion_rdma_rig import POISON, RdmaRig, rdma_rig
from transport_times import soon

ROOM = 40_000
SUCCESS = 0


@pytest.fixture
def rig(rdma_device: str, rdma_address: str) -> Iterator[RdmaRig]:
    with rdma_rig(rdma_device, rdma_address) as made:
        yield made


def former_place(rig: RdmaRig, memory: bytearray) -> PlacementRecord:
    """The place that a connection told its server, and that is registered no more; the memory itself stays."""
    client, peer = rig.pair()
    peer.begin()
    buffer = Buffer.of(memory)
    client.register(buffer)
    sequence = client.submit([b"old"], deadline_ns=soon(), into=buffer.range())
    request = peer.request()
    peer.reply(request, b"old")
    assert bytes(client.wait(sequence, deadline_ns=soon())) == b"old"
    client.close()
    buffer.close()
    del buffer, client
    gc.collect()
    return request.room


def test_a_write_with_the_key_of_memory_that_was_given_back_is_refused_and_lands_nowhere(
    rig: RdmaRig,
) -> None:
    memory = bytearray(POISON * ROOM)
    stale = former_place(rig, memory)
    seen = bytes(memory)
    client, peer = rig.pair()
    peer.begin()
    current = Buffer(ROOM)
    current.view[:] = POISON * ROOM
    client.register(current)
    client.submit([b"new"], deadline_ns=soon(), into=current.range())
    place = peer.request().room
    assert (place.address, place.key) != (stale.address, stale.key)
    post = peer.wire.write(b"s" * 1000, stale.address, stale.key)
    assert peer.wire.status_of(post) != SUCCESS
    assert memory == seen
    assert current.view == POISON * ROOM


def test_the_key_of_memory_that_was_given_back_does_not_open_newer_memory(rig: RdmaRig) -> None:
    stale = former_place(rig, bytearray(ROOM))
    client, peer = rig.pair()
    peer.begin()
    current = Buffer(ROOM)
    current.view[:] = POISON * ROOM
    client.register(current)
    client.submit([b"new"], deadline_ns=soon(), into=current.range())
    place = peer.request().room
    assert place.key != stale.key
    post = peer.wire.write(b"s" * 1000, place.address, stale.key)
    assert peer.wire.status_of(post) != SUCCESS
    assert current.view == POISON * ROOM
