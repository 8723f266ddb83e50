"""A server of the document alone against the library's client, over RDMA."""

import contextlib
import random
from collections.abc import Iterator

import pytest
from ofl.errors import CancelledError, DeadlineError, PeerLostError
from ofl.memory import Buffer
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.peers import Cancel
from rdma.second_opinion.records import Type
from rdma.second_opinion_rdma_rig import MARGIN, POISON, RdmaRig, boundary_sizes, rdma_rig
from transport_times import after, scaled, soon


@pytest.fixture
def rig(rdma_device: str, rdma_address: str) -> Iterator[RdmaRig]:
    with rdma_rig(rdma_device, rdma_address) as made:
        yield made


@pytest.mark.smoke
@pytest.mark.parametrize("segment_bytes", [16384, 5001, 1024])
def test_requests_of_every_size_arrive_and_replies_return(rig: RdmaRig, segment_bytes: int) -> None:
    client, peer = rig.pair(rig.server_link(segment_bytes=segment_bytes))
    peer.begin()  # judged: the first segment is a heartbeat
    for size in boundary_sizes(peer.wire.segment_bytes):
        body = random.Random(size).randbytes(size)
        sequence = rig.background(client.submit, [body], deadline_ns=soon())
        request = peer.request()
        assert (request.body, request.placement) == (body, None)
        assert request.sequence == sequence.result()
        waiting = rig.background(client.wait, request.sequence, deadline_ns=soon())
        peer.reply(request, body[::-1])
        assert waiting.result() == body[::-1], size


@pytest.mark.parametrize("segment_bytes", [16384, 5001, 1024])
def test_placed_replies_are_read_where_they_were_written(rig: RdmaRig, segment_bytes: int) -> None:
    client, peer = rig.pair(rig.server_link(segment_bytes=segment_bytes))
    peer.begin()
    buffer = Buffer(100_000 + 2 * MARGIN)
    client.register(buffer)
    for size in boundary_sizes(segment_bytes)[:-1]:
        buffer.view[:] = POISON * buffer.nbytes
        sequence = client.submit([b"q"], deadline_ns=soon(), into=buffer.range(MARGIN, 100_000))
        request = peer.request()
        assert (request.body, request.room.bytes) == (b"q", 100_000)
        body = random.Random(size).randbytes(size)
        waiting = rig.background(client.wait, sequence, deadline_ns=soon())
        peer.reply(request, body)
        assert waiting.result() == body, size
        assert buffer.view[:MARGIN] == POISON * MARGIN
        assert buffer.view[MARGIN + size :] == POISON * (buffer.nbytes - MARGIN - size)


@pytest.mark.parametrize("mtu_bytes", [512, 4096], ids=["the server's", "the client's"])
def test_packets_keep_to_the_smaller_path_mtu_of_both_ends(rig: RdmaRig, mtu_bytes: int) -> None:
    client, peer = rig.pair(rig.server_link(mtu_bytes=mtu_bytes))
    peer.begin()
    assert peer.wire.theirs.mtu_bytes not in (512, 4096)  # else both ends have the same
    buffer = Buffer(75_000)
    client.register(buffer)
    body = random.Random(5).randbytes(75_000)
    for into in (None, buffer.range()):
        sequence = client.submit([body], deadline_ns=soon(), into=into)
        request = peer.request()
        assert request.body == body
        waiting = rig.background(client.wait, sequence, deadline_ns=soon())
        peer.reply(request, body[::-1])
        assert waiting.result() == body[::-1]


@pytest.mark.parametrize("writes", [0, 1, 2], ids=["one write", "full and full", "two full and none"])
def test_the_rest_of_a_placed_reply_may_be_long_or_nothing(rig: RdmaRig, writes: int) -> None:
    client, peer = rig.pair()
    peer.begin()
    buffer = Buffer(100_000)
    client.register(buffer)
    sequence = client.submit([b"q"], deadline_ns=soon(), into=buffer.range())
    request = peer.request()
    segment = peer.wire.segment_bytes
    body, place = random.Random(6).randbytes(2 * segment), request.room
    for at in range(0, writes * segment, segment):
        peer.wire.write(body[at : at + segment], place.address + at, place.key)
    at = writes * segment
    peer.wire.place_rest(body[at:], place.address + at, place.key, writes * 256 + request.slot)
    assert client.wait(sequence, deadline_ns=soon()) == body


def test_a_placed_reply_is_not_read_before_its_write_with_immediate(rig: RdmaRig) -> None:
    client, peer = rig.pair()
    peer.begin()
    buffer = Buffer(50_000)
    client.register(buffer)
    sequence = client.submit([b"q"], deadline_ns=soon(), into=buffer.range())
    request = peer.request()
    segment, place = peer.wire.segment_bytes, request.room
    written = peer.wire.write(b"w" * segment, place.address, place.key)
    assert peer.wire.status_of(written) == 0
    with pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=after(0.1))
    peer.wire.place_rest(b"rest", place.address + segment, place.key, 256 + request.slot)
    assert client.wait(sequence, deadline_ns=soon()) == b"w" * segment + b"rest"


def test_a_client_stops_at_two_receives_and_goes_on_when_it_is_told(rig: RdmaRig) -> None:
    client, peer = rig.pair(rig.server_link(receives=8))
    peer.begin()
    peer.wire.tells = peer.beats = False
    sent = 0
    with contextlib.suppress(DeadlineError):
        while sent < 8:
            client.submit([b"%d" % sent], deadline_ns=after(0.3))
            sent += 1
    assert sent < 8
    requests = [peer.request() for _ in range(sent)]  # judged: no segment with bytes for the last two
    assert peer.wire.credits.granted <= 2
    assert client.alive
    peer.wire.tells = True
    peer.pump(scaled(0.1))
    for request in requests:
        peer.reply(request, request.body)
    for request in requests:
        assert client.wait(request.sequence, deadline_ns=soon()) == request.body
    again = client.submit([b"again"], deadline_ns=soon())
    peer.reply(peer.request(), b"again")
    assert client.wait(again, deadline_ns=soon()) == b"again"


def test_a_client_returns_what_it_was_sent(rig: RdmaRig) -> None:
    client, peer = rig.pair()
    peer.begin()
    peer.beats = False
    theirs = peer.wire.theirs.receives
    for _ in range(4 * theirs):
        peer.wire.send_segment(Frame(Type.HEARTBEAT).pack())  # waits where nothing is returned
    # Else a segment without bytes would be due.
    peer.pump_until(
        lambda: peer.wire.credits.left > theirs // 2, "more than half of all receives are told of"
    )
    assert client.alive


def test_a_slot_is_used_by_generation_after_generation(rig: RdmaRig) -> None:
    client, peer = rig.pair()
    peer.begin()
    buffer = Buffer(100)
    client.register(buffer)
    late = client.submit([b"late"], deadline_ns=soon())
    old = peer.request()
    client.cancel(late)
    assert peer.cancel() == Cancel(late)
    request = old
    while request.slot != old.slot or request == old:
        sequence = client.submit([b"q"], deadline_ns=soon(), into=buffer.range())
        request = peer.request()
        if request.slot == old.slot:
            peer.send(Frame(Type.REPLY, old.sequence, b"of the old generation"))
        peer.reply(request, b"fine")
        assert bytes(client.wait(sequence, deadline_ns=soon())) == b"fine"
    assert request.sequence == old.sequence + 256
    with pytest.raises(CancelledError):
        client.wait(late, deadline_ns=soon())


def test_a_client_that_closes_says_so_and_one_that_is_told_knows_why(rig: RdmaRig) -> None:
    client, peer = rig.pair()
    peer.begin()
    client.close()
    peer.ended()
    client, peer = rig.pair()
    peer.begin()
    sequence = client.submit([b"q"], deadline_ns=soon())
    peer.request()
    peer.say_goodbye("maintenance")
    with pytest.raises(PeerLostError, match="maintenance"):
        client.wait(sequence, deadline_ns=soon())
