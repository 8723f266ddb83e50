"""Peers that break the document's rules for RDMA on purpose: each ends its own connection, with the fault named.

The process lives on, and so does everybody else's connection.
"""

from collections.abc import Callable, Iterator

import pytest
from ofl.errors import PeerLostError
from ofl.interface import Connected, Disconnected
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.peers import ClientPeer
from rdma.second_opinion.rdma_wire import RdmaWire
from rdma.second_opinion.records import PLACED, PlacementRecord, Type
from rdma.second_opinion_faults import BOTH, named
from rdma.second_opinion_rdma_rig import RdmaRig, rdma_rig
from transport_harness import answer, take
from transport_times import scaled, soon, span_ns


@pytest.fixture
def rig(rdma_device: str, rdma_address: str) -> Iterator[RdmaRig]:
    with rdma_rig(rdma_device, rdma_address) as made:
        yield made


@pytest.mark.parametrize(("misbehave", "clause"), named(BOTH))
def test_a_client_that_breaks_a_rule_is_dropped_with_the_fault_named(
    rig: RdmaRig, misbehave: Callable[[RdmaWire], None], clause: str
) -> None:
    server, endpoint = rig.harness.listening()
    bystander = rig.client_peer(endpoint)
    bystander.begin()
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    peer = rig.client_peer(endpoint, rig.client_link(receives=8), loss_ms=int(scaled(3000)))
    peer.begin()
    connected = server.next_event(deadline_ns=soon())
    misbehave(peer.wire)
    event = server.next_event(deadline_ns=soon())
    assert isinstance(connected, Connected)
    assert isinstance(event, Disconnected), event
    assert event.connection == connected.connection
    assert clause in event.reason
    assert server.counters()["garbage"] + server.counters()["oversized"] == 1
    sequence = bystander.request(b"unharmed")
    answer(server, take(server), b"unharmed")
    assert bystander.answers(1)[sequence].body == b"unharmed"


def writes_to_a_server(peer: ClientPeer[RdmaWire]) -> None:
    """Of no bytes, which needs no key."""
    peer.wire.place_rest(b"", 0, 0, 7)


def half_a_placement(peer: ClientPeer[RdmaWire]) -> None:
    peer.send(Frame(Type.REQUEST, 1, bytes(8), PLACED))


def a_second_link(peer: ClientPeer[RdmaWire]) -> None:
    peer.send(Frame(Type.LINK, body=bytes(40)))


@pytest.mark.parametrize(
    ("misbehave", "clause"),
    named([(writes_to_a_server, "queue pair"), (half_a_placement, "body_bytes"), (a_second_link, "type")]),
)
def test_a_client_that_does_what_no_client_may_is_dropped_with_the_fault_named(
    rig: RdmaRig, misbehave: Callable[[ClientPeer[RdmaWire]], None], clause: str
) -> None:
    server, endpoint = rig.harness.listening()
    peer = rig.client_peer(endpoint)
    peer.begin()
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    misbehave(peer)
    event = server.next_event(deadline_ns=soon())
    assert isinstance(event, Disconnected), event
    assert clause in event.reason


@pytest.mark.parametrize("fault", ["key", "address", "end"])
def test_a_placement_that_names_memory_which_is_not_the_clients_ends_its_connection(
    rig: RdmaRig, fault: str
) -> None:
    _, endpoint = rig.harness.echo()
    bystander = rig.client_peer(endpoint)
    bystander.begin()
    peer = rig.client_peer(endpoint)
    peer.begin()
    region = peer.wire.pair.region
    place = {
        "key": PlacementRecord(region.buf, region.rkey ^ 0x5500, 100),
        "address": PlacementRecord(region.buf - (1 << 20), region.rkey, 100),
        "end": PlacementRecord(region.buf + region.length - 50, region.rkey, 100),
    }[fault]
    peer.send(Frame(Type.REQUEST, 1, place.pack() + bytes(100), PLACED))
    peer.ended()
    sequence = bystander.request(b"unharmed")
    assert bystander.answers(1)[sequence].body == b"unharmed"


@pytest.mark.parametrize(("misbehave", "clause"), named(BOTH))
def test_a_server_that_breaks_a_rule_is_left_with_the_fault_named(
    rig: RdmaRig, misbehave: Callable[[RdmaWire], None], clause: str
) -> None:
    connecting = rig.connecting(loss_ns=span_ns(3))
    peer = rig.accept(rig.server_link(receives=8))
    client = connecting.result()
    peer.begin()
    sequence = client.submit([b"x"], deadline_ns=soon())
    peer.request()
    misbehave(peer.wire)
    with pytest.raises(PeerLostError, match=clause):
        client.wait(sequence, deadline_ns=soon())
    client, peer = rig.pair()
    peer.begin()
    sequence = client.submit([b"unharmed"], deadline_ns=soon())
    peer.reply(peer.request(), b"unharmed")
    assert client.wait(sequence, deadline_ns=soon()) == b"unharmed"


def test_a_segment_over_the_smaller_of_both_sizes_ends_the_connection(rig: RdmaRig) -> None:
    body = bytes(1001)  # with its header one byte too many
    server, endpoint = rig.harness.listening()
    asking = rig.client_peer(endpoint, rig.client_link(segment_bytes=1024))
    asking.begin()
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    asking.wire.raw(Frame(Type.REQUEST, 1, body).pack(), 0)
    event = server.next_event(deadline_ns=soon())
    assert isinstance(event, Disconnected), event
    assert "segment" in event.reason
    client, peer = rig.pair(rig.server_link(segment_bytes=1024))
    peer.begin()
    sequence = client.submit([b"x"], deadline_ns=soon())
    peer.request()
    peer.wire.raw(Frame(Type.REPLY, sequence, body).pack(), 0)
    with pytest.raises(PeerLostError, match="segment"):
        client.wait(sequence, deadline_ns=soon())
