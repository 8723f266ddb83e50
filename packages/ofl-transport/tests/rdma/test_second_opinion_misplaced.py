"""A server of the document that writes where nobody asked it to: the client's connection ends, with the fault named."""

from collections.abc import Callable, Iterator

import pytest
from ofl.errors import PeerLostError
from ofl.memory import Buffer
from rdma.second_opinion.peers import Request, ServerPeer
from rdma.second_opinion.rdma_wire import RdmaWire
from rdma.second_opinion_faults import named
from rdma.second_opinion_rdma_rig import POISON, RdmaRig, rdma_rig
from transport_times import soon

ROOM = 1000
GUARD = 200_000


@pytest.fixture
def rig(rdma_device: str, rdma_address: str) -> Iterator[RdmaRig]:
    with rdma_rig(rdma_device, rdma_address) as made:
        yield made


Misplace = Callable[[ServerPeer[RdmaWire], Request, Request], None]


def into_a_free_slot(peer: ServerPeer[RdmaWire], placed: Request, plain: Request) -> None:
    peer.wire.place_rest(b"w", placed.room.address, placed.room.key, 200)


def into_the_slot_of_a_plain_call(peer: ServerPeer[RdmaWire], placed: Request, plain: Request) -> None:
    peer.wire.place_rest(b"w", placed.room.address, placed.room.key, plain.slot)


def into_the_same_slot_twice(peer: ServerPeer[RdmaWire], placed: Request, plain: Request) -> None:
    for _ in range(2):
        peer.wire.place_rest(b"w", placed.room.address, placed.room.key, placed.slot)


def more_than_fits(peer: ServerPeer[RdmaWire], placed: Request, plain: Request) -> None:
    peer.wire.place_rest(b"w" * (ROOM + 1), placed.room.address, placed.room.key, placed.slot)


def more_than_fits_in_two_writes(peer: ServerPeer[RdmaWire], placed: Request, plain: Request) -> None:
    body = b"w" * (peer.wire.segment_bytes + 1)
    peer.wire.place(body, placed.room, placed.slot)


def more_writes_than_there_were(peer: ServerPeer[RdmaWire], placed: Request, plain: Request) -> None:
    immediate = 0xFFFFFF << 8 | placed.slot
    peer.wire.place_rest(b"w", placed.room.address, placed.room.key, immediate)


@pytest.mark.parametrize(
    ("misplace", "clause"),
    named(
        [
            (into_a_free_slot, "slot"),
            (into_the_slot_of_a_plain_call, "slot"),
            (into_the_same_slot_twice, "slot"),
            (more_than_fits, "over the room"),
            (more_than_fits_in_two_writes, "over the room"),
            (more_writes_than_there_were, "over the room"),
        ]
    ),
)
def test_a_write_that_nobody_asked_for_ends_the_connection(
    rig: RdmaRig, misplace: Misplace, clause: str
) -> None:
    client, peer = rig.pair()
    peer.begin()
    buffer = Buffer(ROOM + GUARD)
    buffer.view[:] = POISON * buffer.nbytes
    client.register(buffer)
    placing = client.submit([b"placed"], deadline_ns=soon(), into=buffer.range(0, ROOM))
    waited_for = client.submit([b"plain"], deadline_ns=soon())
    placed, plain = peer.request(), peer.request()
    misplace(peer, placed, plain)
    with pytest.raises(PeerLostError, match=clause):
        client.wait(waited_for, deadline_ns=soon())
    client.cancel(placing)
    assert client.settled(placing, deadline_ns=soon())
    client, peer = rig.pair()
    peer.begin()
    client.register(buffer)
    sequence = client.submit([b"unharmed"], deadline_ns=soon(), into=buffer.range(0, ROOM))
    peer.reply(peer.request(), b"unharmed")
    assert bytes(client.wait(sequence, deadline_ns=soon())) == b"unharmed"
