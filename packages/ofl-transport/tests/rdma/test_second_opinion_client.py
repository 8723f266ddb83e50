"""A client of the document alone against the library's server, over RDMA.

Everything that the server sends is judged by the peer; a fault raises where the test waits.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ofl.interface import Connected, Disconnected
from ofl.memory import Buffer
from rdma.second_opinion.control import EndedError
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.negotiation import RefusedError
from rdma.second_opinion.peers import ClientPeer
from rdma.second_opinion.rdma_wire import RdmaWire, link_body
from rdma.second_opinion.records import Refusal, Type
from rdma.second_opinion.wires import Placed, Room
from rdma.second_opinion_rdma_rig import (
    MARGIN,
    POISON,
    REGION_BYTES,
    RdmaRig,
    boundary_sizes,
    poison,
    rdma_rig,
)
from transport_harness import answer, take
from transport_times import scaled, soon

KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def rig(rdma_device: str, rdma_address: str) -> Iterator[RdmaRig]:
    with rdma_rig(rdma_device, rdma_address) as made:
        yield made


def begun(rig: RdmaRig, endpoint: str, **link: int) -> ClientPeer[RdmaWire]:
    """A peer that has shown the first sign of life."""
    peer = rig.client_peer(endpoint, rig.client_link(**link))
    peer.begin()
    return peer


def rnr_naks(device: str) -> int:
    """How often a receive was not there, on either side."""
    folder = Path("/sys/class/infiniband", device, "ports", "1", "hw_counters")
    return sum(int((folder / name).read_text()) for name in ("rcvd_rnr_err", "send_rnr_err"))


def test_a_server_says_nothing_before_the_first_segment(rig: RdmaRig) -> None:
    _, endpoint = rig.harness.echo()
    peer = rig.client_peer(endpoint)
    peer.beats = False
    peer.pump(scaled(0.3))  # six heartbeat_ms
    assert peer.wire.credits.arrived == 0
    peer.begin()
    assert peer.heartbeats_s(3) > 2 * scaled(0.025)


@pytest.mark.smoke
@pytest.mark.parametrize("segment_bytes", [16384, 5001, 1024])
def test_bodies_of_every_size_are_echoed(rig: RdmaRig, segment_bytes: int) -> None:
    server, endpoint = rig.harness.echo()
    peer = begun(rig, endpoint, segment_bytes=segment_bytes)
    assert peer.wire.segment_bytes == min(segment_bytes, peer.wire.theirs.segment_bytes)
    for size in boundary_sizes(peer.wire.segment_bytes):
        body = random.Random(size).randbytes(size)
        sequence = peer.request(body)
        assert peer.answers(1)[sequence].body == body, size
    assert server.counters()["garbage"] == 0


@pytest.mark.parametrize("mtu_bytes", [512, 4096], ids=["the client's", "the server's"])
def test_packets_keep_to_the_smaller_path_mtu_of_both_ends(rig: RdmaRig, mtu_bytes: int) -> None:
    _, endpoint = rig.harness.echo()
    peer = begun(rig, endpoint, mtu_bytes=mtu_bytes)
    assert peer.wire.theirs.mtu_bytes not in (512, 4096)  # else both ends have the same
    body = random.Random(5).randbytes(75_000)
    sequence = peer.request(body)
    assert peer.answers(1)[sequence].body == body
    poison(peer.wire)
    sequence = peer.request(body, Room(MARGIN, 75_000))
    placed = peer.answers(1)[sequence]
    assert (placed.placed, placed.body) == (True, body)
    assert peer.wire.region(0, MARGIN) == POISON * MARGIN


def test_a_frame_may_be_cut_into_segments_of_any_size(rig: RdmaRig) -> None:
    server, endpoint = rig.harness.listening()
    peer = begun(rig, endpoint)
    body = random.Random(1).randbytes(40)
    for first, step in ((24, 1), (24, 40), (25, 7), (63, 1), (64, 40)):
        peer.wire.send_segment(Frame(Type.REQUEST, first * 256 + step, body).pack()[:first])
        rest = Frame(Type.REQUEST, first * 256 + step, body).pack()[first:]
        for at in range(0, len(rest), step):
            peer.wire.send_segment(rest[at : at + step])
        request = take(server)
        assert bytes(request.body) == body
        assert server.reply(request.connection, request.sequence, [b"whole"])
        arrival = peer.arrival()
        assert isinstance(arrival, Frame)
        assert (arrival.sequence, arrival.body) == (first * 256 + step, b"whole")


@pytest.mark.smoke
@pytest.mark.parametrize("segment_bytes", [16384, 5001, 1024])
def test_a_placed_reply_lands_in_its_room_and_nowhere_else(rig: RdmaRig, segment_bytes: int) -> None:
    _, endpoint = rig.harness.echo()
    peer = begun(rig, endpoint, segment_bytes=segment_bytes)
    for size in boundary_sizes(segment_bytes):
        poison(peer.wire)
        body = random.Random(size).randbytes(size)
        sequence = peer.request(body, Room(MARGIN, size))
        placed = peer.answers(1)[sequence]
        assert placed.placed
        assert placed.body == body, size
        assert peer.wire.region(0, MARGIN) == POISON * MARGIN
        rest = REGION_BYTES - MARGIN - size
        assert peer.wire.region(MARGIN + size, rest) == POISON * rest


def test_a_placed_reply_comes_in_writes_of_one_segment_and_the_rest(rig: RdmaRig) -> None:
    _, endpoint = rig.harness.echo()
    peer = begun(rig, endpoint, segment_bytes=1024)
    for size, writes in ((0, 0), (1023, 0), (1025, 1), (2500, 2)):
        sequence = peer.request(bytes(size), Room(0, size))
        assert peer.arrival() == Placed(sequence % 256, size, writes)
        peer.forget(sequence)


def test_a_placed_reply_from_lent_memory_is_the_same(rig: RdmaRig) -> None:
    server, endpoint = rig.harness.listening()
    lent = Buffer(300_000)
    lent.view[:] = random.Random(2).randbytes(300_000)
    server.register(lent)
    peer = begun(rig, endpoint)
    for start, size in ((0, 300_000), (7, 16384), (299_999, 1)):
        poison(peer.wire)
        sequence = peer.request(b"", Room(MARGIN, 300_000))
        request = take(server)
        part = lent.view[start : start + size]
        assert server.reply(request.connection, request.sequence, [part], lent=lent)
        assert peer.answers(1)[sequence].body == bytes(part)
        assert peer.wire.region(MARGIN + size, 1000) == POISON * 1000
    assert server.idle(lent, deadline_ns=soon())


def test_rooms_of_many_calls_are_written_in_any_order(rig: RdmaRig) -> None:
    server, endpoint = rig.harness.listening()
    peer = begun(rig, endpoint)
    poison(peer.wire)
    sent = {peer.request(b"%d" % n, Room(n * 4000, 4000)): n for n in range(200)}
    requests = [take(server) for _ in sent]
    random.Random(3).shuffle(requests)
    for request in requests:
        answer(server, request, bytes([sent[request.sequence]]) * 3999)
    for sequence, found in peer.answers(200).items():
        assert found.body == bytes([sent[sequence]]) * 3999
    assert all(peer.wire.region(n * 4000 + 3999, 1) == POISON for n in range(200))


def test_the_cancel_of_a_placed_request_is_answered_and_nothing_is_written(rig: RdmaRig) -> None:
    server, endpoint = rig.harness.listening()
    peer = begun(rig, endpoint)
    poison(peer.wire)
    plain, placed = peer.request(b"plain"), peer.request(b"placed", Room(MARGIN, 100_000))
    requests = [take(server) for _ in range(2)]
    peer.cancel(plain)
    peer.cancel(placed)
    settled = peer.answer()  # judged: one for the plain call would be a fault
    assert (settled.sequence, settled.cancelled) == (placed, True)
    for request in requests:
        assert not server.reply(request.connection, request.sequence, [b"r" * 100_000])
    behind = peer.request(b"behind")
    answer(server, take(server), b"behind")
    assert peer.answers(1)[behind].body == b"behind"
    assert peer.wire.region(0, REGION_BYTES) == POISON * REGION_BYTES


def test_a_cancel_before_the_server_has_taken_the_request_is_answered_too(rig: RdmaRig) -> None:
    server, endpoint = rig.harness.listening()
    peer = begun(rig, endpoint)
    placed = peer.request(b"placed", Room(0, 100))
    peer.cancel(placed)
    assert peer.answer().cancelled
    peer.request(b"next")
    assert bytes(take(server).body) == b"next"


def test_a_cancel_that_crosses_the_reply_of_a_placed_request_is_not_answered(rig: RdmaRig) -> None:
    server, endpoint = rig.harness.listening()
    peer = begun(rig, endpoint)
    placed, other = peer.request(b"placed", Room(0, 100_000)), peer.request(b"other")
    answer(server, take(server), b"r" * 100_000)
    peer.cancel(placed)
    answer(server, take(server), b"behind the cancel")
    found = peer.answer()
    assert (found.placed, found.body) == (True, b"r" * 100_000)
    found = peer.answer()  # judged: a cancelled frame in between would be a fault
    assert (found.sequence, found.body) == (other, b"behind the cancel")


def test_a_server_stops_at_two_receives_and_goes_on_when_it_is_told(rig: RdmaRig) -> None:
    _, endpoint = rig.harness.echo()
    before = rnr_naks(rig.device)
    peer = begun(rig, endpoint, receives=8, segment_bytes=1024)
    peer.wire.tells = False
    peer.beats = False
    body = random.Random(4).randbytes(20_000)  # five segments
    sequences = [peer.request(body) for _ in range(4)]
    peer.pump(scaled(0.5))
    assert peer.wire.credits.granted <= 2  # judged: the last two carry no bytes
    peer.wire.tells = True
    found = peer.answers(4)
    assert [found[sequence].body for sequence in sequences] == [body] * 4
    assert rnr_naks(rig.device) == before


@pytest.mark.parametrize("receives", [4, 5, 300])
def test_few_receives_or_many_are_enough(rig: RdmaRig, receives: int) -> None:
    _, endpoint = rig.harness.echo()
    before = rnr_naks(rig.device)
    peer = begun(rig, endpoint, receives=receives, segment_bytes=1024)
    body = random.Random(5).randbytes(100_000)
    for _ in range(3):
        plain, placed = peer.request(body), peer.request(body, Room(0, 100_000))
        found = peer.answers(2)
        assert found[plain].body == found[placed].body == body
    assert rnr_naks(rig.device) == before


def test_a_server_returns_what_it_was_sent(rig: RdmaRig) -> None:
    server, endpoint = rig.harness.listening()
    peer = begun(rig, endpoint)
    theirs = peer.wire.theirs.receives
    peer.beats = False
    for number in range(4 * theirs):
        peer.wire.send_segment(Frame(Type.HEARTBEAT).pack())  # waits where nothing is returned
        assert peer.wire.credits.left >= 0, number
    # Else a segment without bytes would be due.
    peer.pump_until(
        lambda: peer.wire.credits.left > theirs // 2, "more than half of all receives are told of"
    )
    assert server.counters()["garbage"] == 0


def test_a_server_proves_its_key_over_rdma_too(rig: RdmaRig, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(KEY)
    _, endpoint = rig.harness.echo(key_file=path)
    peer = rig.client_peer(endpoint, key=KEY)
    peer.begin()
    sequence = peer.request(b"proved")
    assert peer.answers(1)[sequence].body == b"proved"
    with pytest.raises(RefusedError) as refused:
        rig.client_peer(endpoint, key=KEY[::-1])
    assert refused.value.code == Refusal.AUTHENTICATION


def test_both_ends_are_told_why_the_other_closes(rig: RdmaRig) -> None:
    server, endpoint = rig.harness.listening()
    peer = begun(rig, endpoint)
    connected = server.next_event(deadline_ns=soon())
    assert isinstance(connected, Connected)
    server.disconnect(connected.connection, "maintenance")
    assert peer.ended().text == "maintenance"
    peer = begun(rig, endpoint)
    peer.say_goodbye("enough")
    events = [server.next_event(deadline_ns=soon()) for _ in range(3)]
    assert [type(event) for event in events] == [Disconnected, Connected, Disconnected]
    assert "goodbye" in events[2].reason  # type: ignore[union-attr]


def test_the_end_of_the_control_socket_is_the_end_of_the_client(rig: RdmaRig) -> None:
    server, endpoint = rig.harness.listening()
    peer = begun(rig, endpoint)
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    peer.wire.control.close()  # the queue pair is alive and well
    event = server.next_event(deadline_ns=soon())
    assert isinstance(event, Disconnected), event


@pytest.mark.parametrize(
    "change",
    [
        {"gid": bytes(16)},
        {"receives": 0},
        {"receives": 2},
        {"segment_bytes": 23},
        {"mtu_bytes": 1500},
        {"queue_pair": 1 << 24},
        {"packet_sequence": 1 << 24},
        {"reserved": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_link_that_cannot_be_is_not_answered_by_one(rig: RdmaRig, change: dict[str, object]) -> None:
    server, endpoint = rig.harness.echo()
    link = rig.client_link(tell=lambda pair: replace(link_body(pair), **change))  # type: ignore[arg-type]
    with pytest.raises((EndedError, RefusedError)):
        rig.client_peer(endpoint, link)
    assert server.counters()["accepted"] == server.counters()["disconnects"]
    peer = begun(rig, endpoint)
    sequence = peer.request(b"still there")
    assert peer.answers(1)[sequence].body == b"still there"
