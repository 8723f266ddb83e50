"""The second opinion's two ends against each other, over RDMA: each keeps the rules, and finds who does not.

Without the library; what fails here is the peer's own fault, or the rig's.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.peers import ClientPeer, ServerPeer
from rdma.second_opinion.rdma_wire import RdmaWire
from rdma.second_opinion.records import Type, WireFaultError
from rdma.second_opinion.wires import Room
from rdma.second_opinion_rdma_rig import (
    MARGIN,
    POISON,
    REGION_BYTES,
    RdmaRig,
    boundary_sizes,
    poison,
    rdma_rig,
)

Ends = tuple[ClientPeer[RdmaWire], ServerPeer[RdmaWire]]


@pytest.fixture
def rig(rdma_device: str, rdma_address: str) -> Iterator[RdmaRig]:
    with rdma_rig(rdma_device, rdma_address) as made:
        yield made


def pair(rig: RdmaRig, *, receives: int = 64, segment_bytes: int = 16384) -> Ends:
    link = rig.client_link(receives=receives, segment_bytes=segment_bytes)
    with ThreadPoolExecutor() as pool:
        connecting = pool.submit(rig.client_peer, rig.endpoint, link)
        server = rig.accept()
        client = connecting.result()
    client.begin()
    server.begin()
    return client, server


@pytest.mark.parametrize("segment_bytes", [16384, 1000])
def test_echoes_and_placed_replies_of_every_size_pass(rig: RdmaRig, segment_bytes: int) -> None:
    client, server = pair(rig, segment_bytes=segment_bytes)
    assert client.wire.segment_bytes == server.wire.segment_bytes == segment_bytes
    for size in boundary_sizes(segment_bytes)[:-1]:
        body = bytes(range(256)) * (size // 256) + bytes(size % 256)
        with ThreadPoolExecutor() as pool:  # the two ends exchange credits while a large body is on its way
            asking = pool.submit(client.request, body)
            request = server.request()
            plain = asking.result()
            replying = pool.submit(server.reply, request, body)
            assert client.answers(1)[plain].body == body
            replying.result()
        poison(client.wire)
        placed = client.request(b"", Room(MARGIN, size))
        server.reply(server.request(), body)
        assert client.answers(1)[placed].body == body
        assert client.wire.region(0, MARGIN) == POISON * MARGIN
        rest = REGION_BYTES - MARGIN - size
        assert client.wire.region(MARGIN + size, rest) == POISON * rest


def overdraw(client: ClientPeer[RdmaWire]) -> None:
    for _ in range(client.wire.credits.left):
        client.wire.raw(Frame(Type.HEARTBEAT).pack(), 0)


def half_a_header(client: ClientPeer[RdmaWire]) -> None:
    client.wire.raw(Frame(Type.HEARTBEAT).pack()[:12], 0)


def two_frames(client: ClientPeer[RdmaWire]) -> None:
    client.wire.raw(Frame(Type.HEARTBEAT).pack() * 2, 0)


def too_many_receives(client: ClientPeer[RdmaWire]) -> None:
    client.wire.raw(b"", 65)


def no_immediate(client: ClientPeer[RdmaWire]) -> None:
    client.wire.raw(Frame(Type.HEARTBEAT).pack(), None)


def control_byte(client: ClientPeer[RdmaWire]) -> None:
    client.wire.control.send_bytes(b"x")


@pytest.mark.parametrize(
    ("misbehave", "clause"),
    [
        (overdraw, "a segment with bytes came with 2 receives left"),
        (half_a_header, "a part of a header"),
        (two_frames, "two frames"),
        (too_many_receives, "returns 65 receives"),
        (no_immediate, "without an immediate"),
        (control_byte, "a byte on the control socket"),
    ],
)
def test_who_breaks_a_rule_is_found(rig: RdmaRig, misbehave: object, clause: str) -> None:
    client, server = pair(rig)
    server.wire.tells = False
    misbehave(client)  # type: ignore[operator]
    with pytest.raises(WireFaultError, match=clause):
        server.arrival()
