"""The second opinion on shared memory: the region, the rings and the bells."""

import os
import random
from collections.abc import Callable, Iterator

import pytest
from ofl.errors import PeerLostError
from rdma.second_opinion.control import FrameSocket
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.records import Type
from rdma.second_opinion.shm_region import ATTACHED, CLOSED
from rdma.second_opinion.shm_wire import ShmWire
from rdma.second_opinion_rig import Rig
from transport_backends import SHM
from transport_harness import Harness, answer, take
from transport_times import eventually, soon

HEARTBEAT = Frame(Type.HEARTBEAT).pack()
ShmRig = Rig[ShmWire]


@pytest.fixture
def rig() -> Iterator[ShmRig]:
    harness = Harness(SHM)
    with harness.stack:
        yield Rig(harness, ShmWire.as_client, ShmWire.as_server)


def wishing(ring_bytes: int) -> Callable[[FrameSocket], ShmWire]:
    def link(control: FrameSocket) -> ShmWire:
        return ShmWire.as_client(control, ring_bytes)

    return link


@pytest.mark.parametrize(
    ("frame_bytes_max", "wish", "ring_bytes"),
    [
        (4096, 1 << 16, 1 << 18),  # a ring is never made smaller
        (100_000, 1 << 16, 1 << 19),  # the smallest that holds four of them
        (1 << 20, 1 << 16, 1 << 20),
        (4096, 1 << 20, 1 << 20),  # the larger wish
    ],
)
def test_a_server_makes_the_region_that_the_document_describes(
    rig: ShmRig, frame_bytes_max: int, wish: int, ring_bytes: int
) -> None:
    _, endpoint = rig.harness.echo(max_frame_bytes=frame_bytes_max)
    peer = rig.client_peer(endpoint, wishing(wish))  # judged: sizes, seals, header, ends
    assert peer.wire.region.ring_bytes == ring_bytes
    server = peer.wire.theirs.record()
    assert (server.process, server.state) == (os.getpid(), ATTACHED)
    assert server.process_start == peer.wire.ours.record().process_start  # it is this process too
    sequence = peer.request(b"question")
    assert peer.answers(1)[sequence].body == b"question"
    assert peer.wire.theirs.load("taken") == peer.wire.writer.position
    assert peer.wire.ours.load("taken") == peer.wire.reader.position


def test_a_client_introduces_itself_in_the_region(rig: ShmRig) -> None:
    client, peer = rig.pair()
    sequence = client.submit([b"q"], deadline_ns=soon())
    peer.reply(peer.request(), b"r")
    assert client.wait(sequence, deadline_ns=soon()) == b"r"
    end = peer.wire.theirs.record()
    assert (end.process, end.state) == (os.getpid(), ATTACHED)
    assert end.process_nonce != peer.wire.ours.record().process_nonce != 0
    client.close()
    eventually(lambda: peer.wire.theirs.load("state") == CLOSED, "the client says that it has closed")


def test_frames_of_any_size_go_around_the_ring_many_times(rig: ShmRig) -> None:
    server, endpoint = rig.harness.echo(max_frame_bytes=1 << 20)
    peer = rig.client_peer(endpoint)
    chance = random.Random(1)
    sizes = [0, 1, 31, 32, 33, 96, 97, *(int(2 ** chance.uniform(0, 20)) for _ in range(300))]
    for size in sizes:
        body = chance.randbytes(size)
        sequence = peer.request(body)
        assert peer.answers(1)[sequence].body == body, size
    assert peer.wire.writer.position > 10 * peer.wire.region.ring_bytes
    assert server.counters()["garbage"] == 0


def test_replies_that_nobody_reads_wait_for_room_and_then_come_whole(rig: ShmRig) -> None:
    server, endpoint = rig.harness.listening(max_queued_bytes=1 << 26)
    peer = rig.client_peer(endpoint)
    bodies = {peer.request(b"%d" % n): random.Random(n).randbytes(700_000) for n in range(5)}
    for _ in bodies:
        request = take(server)
        answer(server, request, bodies[request.sequence])
    eventually(lambda: peer.wire.theirs.load("room_wanted") != 0, "the server waits for room")
    taken = peer.wire.ours.load("taken")
    assert peer.wire.theirs.load("room_wanted") > taken
    found = peer.answers(5)
    assert {sequence: found[sequence].body for sequence in bodies} == bodies
    eventually(lambda: peer.wire.theirs.load("room_wanted") == 0, "the server waits for room no more")


def test_nobody_is_rung_for_who_does_not_sleep_and_a_sleeper_is_rung_for_once(rig: ShmRig) -> None:
    server, endpoint = rig.harness.listening()
    peer = rig.client_peer(endpoint, heartbeat_ms=60_000, loss_ms=120_000)
    reader = peer.wire.reader

    def calls(count: int) -> None:
        for _ in range(count):
            peer.request(b"q")
            answer(server, take(server), b"r")
            eventually(lambda: reader.ready, "the reply is in the ring")
            peer.wire.look()

    calls(5)
    assert peer.wire.count_bells() == 0
    peer.wire.ours.store("sleeps", peer.wire.ours.load("sleeps") + 1)
    calls(5)
    assert peer.wire.count_bells() == 1
    peer.wire.ours.store("sleeps", peer.wire.ours.load("sleeps") + 1)
    calls(1)
    assert peer.wire.count_bells() == 2


def test_a_server_that_sleeps_is_woken_by_a_bell_and_says_that_it_sleeps(rig: ShmRig) -> None:
    _, endpoint = rig.harness.echo(spin_ns=0)
    peer = rig.client_peer(endpoint, heartbeat_ms=60_000, loss_ms=120_000)
    for _ in range(20):
        before = peer.wire.theirs.load("sleeps")
        sequence = peer.request(b"wake up")  # judged by itself: without the bell this would end at its limit
        assert peer.answers(1)[sequence].body == b"wake up"
        eventually(lambda before=before: peer.wire.theirs.load("sleeps") > before, "it sleeps again")  # type: ignore[misc]


def test_bells_mean_nothing_else(rig: ShmRig) -> None:
    server, endpoint = rig.harness.echo()
    peer = rig.client_peer(endpoint)
    for turn in range(50):
        peer.wire.control.socket.send(bytes([turn]) * 100)
        sequence = peer.request(b"%d" % turn)
        assert peer.answers(1)[sequence].body == b"%d" % turn
    assert server.counters()["garbage"] == 0


def test_what_was_written_before_the_end_of_the_control_socket_is_read(rig: ShmRig) -> None:
    client, peer = rig.pair()
    sequences = [client.submit([b"%d" % n], deadline_ns=soon()) for n in range(20)]
    for _ in sequences:
        peer.reply(peer.request(), b"before the end")
    peer.wire.control.close()
    for sequence in sequences:
        assert client.wait(sequence, deadline_ns=soon()) == b"before the end"
    with pytest.raises(PeerLostError):
        client.wait(client.submit([b"x"], deadline_ns=soon()), deadline_ns=soon())
