"""Peers of the second opinion that spoil shared memory: regions that cannot be, marks and positions that lie."""

import fcntl
import os
from collections.abc import Callable, Iterator

import pytest
from ofl.errors import PeerLostError, TransportError
from ofl.interface import Connected, Disconnected
from rdma.second_opinion.control import FrameSocket
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.records import ShmLinkBody, Type
from rdma.second_opinion.shm_region import SEALS, Region, ShmHeader, offsets
from rdma.second_opinion.shm_wire import ShmWire
from rdma.second_opinion_rig import Rig
from transport_backends import SHM
from transport_harness import Harness, answer, take
from transport_times import eventually, soon

HEARTBEAT = Frame(Type.HEARTBEAT).pack()
ShmRig = Rig[ShmWire]


class AnsweredError(Exception):
    """By this frame."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self.frame = frame


@pytest.fixture
def rig() -> Iterator[ShmRig]:
    harness = Harness(SHM)
    with harness.stack:
        yield Rig(harness, ShmWire.as_client, ShmWire.as_server)


def mark_of_another_place(wire: ShmWire) -> None:
    wire.writer.words[wire.writer.position % wire.region.ring_bytes // 8] = 7 << 32 | 24


def mark_of_nothing(wire: ShmWire) -> None:
    wire.writer.words[wire.writer.position % wire.region.ring_bytes // 8] = wire.writer.mark(0) or 1 << 32


def mark_past_the_end_of_the_ring(wire: ShmWire) -> None:
    place = wire.writer.position % wire.region.ring_bytes
    wire.writer.words[place // 8] = wire.writer.mark(wire.region.ring_bytes - place - 7)


def mark_of_all_there_is(wire: ShmWire) -> None:
    wire.writer.words[wire.writer.position % wire.region.ring_bytes // 8] = wire.writer.mark(0xFFFF_FFFF)


def no_frame(wire: ShmWire) -> None:
    wire.writer.write(memoryview(b"garbage" * 9))


def taken_ahead(wire: ShmWire) -> None:
    wire.ours.store("taken", wire.reader.position + (1 << 30))


def taken_back(wire: ShmWire) -> None:
    wire.ours.store("taken", 0)


MARKS = [
    (mark_of_another_place, "mark"),
    (mark_of_nothing, "mark"),
    (mark_past_the_end_of_the_ring, "mark"),
    (mark_of_all_there_is, "mark"),
    (no_frame, "magic"),
]


def named(rows: list[tuple[Callable[..., None], str]]) -> list[object]:
    return [pytest.param(spoil, clause, id=spoil.__name__) for spoil, clause in rows]


@pytest.mark.parametrize(("spoil", "clause"), named(MARKS))
def test_a_client_that_spoils_the_rings_is_dropped_with_the_fault_named(
    rig: ShmRig, spoil: Callable[[ShmWire], None], clause: str
) -> None:
    server, endpoint = rig.harness.listening()
    bystander = rig.client_peer(endpoint)
    peer = rig.client_peer(endpoint)
    connected = [server.next_event(deadline_ns=soon()) for _ in range(2)][1]
    assert isinstance(connected, Connected)
    for turn in range(5):  # so that nothing is at its beginning
        sequence = peer.request(b"%d" % turn)
        answer(server, take(server), b"r" * 5000)
        assert len(peer.answers(1)[sequence].body) == 5000
    spoil(peer.wire)
    peer.wire.ring()
    event = server.next_event(deadline_ns=soon())
    assert isinstance(event, Disconnected), event
    assert event.connection == connected.connection
    assert clause in event.reason
    sequence = bystander.request(b"unharmed")
    answer(server, take(server), b"unharmed")
    assert bystander.answers(1)[sequence].body == b"unharmed"


@pytest.mark.parametrize(("spoil", "clause"), named(MARKS))
def test_a_server_that_spoils_the_rings_is_left_with_the_fault_named(
    rig: ShmRig, spoil: Callable[[ShmWire], None], clause: str
) -> None:
    client, peer = rig.pair()
    for _ in range(5):
        sequence = client.submit([b"q" * 5000], deadline_ns=soon())
        peer.reply(peer.request(), b"r")
        assert client.wait(sequence, deadline_ns=soon()) == b"r"
    sequence = client.submit([b"q"], deadline_ns=soon())
    peer.request()
    spoil(peer.wire)
    peer.wire.ring()
    with pytest.raises(PeerLostError, match=clause):
        client.wait(sequence, deadline_ns=soon())


TAKEN = [pytest.param(spoil, id=spoil.__name__) for spoil in (taken_ahead, taken_back)]
LARGE = bytes(700_000)
"""Of a ring of 1 MiB, so that every second one makes its writer look at what was taken."""


@pytest.mark.parametrize("spoil", TAKEN)
def test_a_client_that_has_taken_what_cannot_be_is_dropped_when_room_is_wanted(
    rig: ShmRig, spoil: Callable[[ShmWire], None]
) -> None:
    server, endpoint = rig.harness.listening(max_queued_bytes=1 << 26)
    peer = rig.client_peer(endpoint)
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    for _ in range(3):
        peer.request(b"q")
        answer(server, take(server), LARGE)
        assert peer.answer().body == LARGE
    peer.request(b"q")
    request = take(server)
    spoil(peer.wire)
    server.reply(request.connection, request.sequence, [LARGE])
    event = server.next_event(deadline_ns=soon())
    assert isinstance(event, Disconnected), event
    assert "taken" in event.reason


@pytest.mark.parametrize("spoil", TAKEN)
def test_a_server_that_has_taken_what_cannot_be_is_left_when_room_is_wanted(
    rig: ShmRig, spoil: Callable[[ShmWire], None]
) -> None:
    client, peer = rig.pair()
    for _ in range(3):
        sending = rig.background(client.submit, [LARGE], deadline_ns=soon())
        peer.reply(peer.request(), b"r")
        assert client.wait(sending.result(), deadline_ns=soon()) == b"r"
    spoil(peer.wire)
    with pytest.raises(PeerLostError, match="taken"):
        client.submit([LARGE], deadline_ns=soon())


Forge = Callable[[int], tuple[ShmLinkBody, list[int]]]
SIZE = ShmHeader.size() + 2 * (1 << 20)
LINK = ShmLinkBody(1 << 20, SIZE)


def unsealed(descriptor: int) -> tuple[ShmLinkBody, list[int]]:
    copy = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.truncate(copy, SIZE)
    os.pwrite(copy, os.pread(descriptor, ShmHeader.size(), 0), 0)
    return LINK, [copy]


def shrinkable(descriptor: int) -> tuple[ShmLinkBody, list[int]]:
    link, [copy] = unsealed(descriptor)
    fcntl.fcntl(copy, fcntl.F_ADD_SEALS, SEALS & ~fcntl.F_SEAL_SHRINK)
    return link, [copy]


def a_pipe(descriptor: int) -> tuple[ShmLinkBody, list[int]]:
    reading, writing = os.pipe()
    os.close(writing)
    return LINK, [reading]


def no_descriptor(descriptor: int) -> tuple[ShmLinkBody, list[int]]:
    return LINK, []


def two_descriptors(descriptor: int) -> tuple[ShmLinkBody, list[int]]:
    return LINK, [os.dup(descriptor), os.dup(descriptor)]


def a_smaller_region(descriptor: int) -> tuple[ShmLinkBody, list[int]]:
    region, other = Region.make(1 << 18)
    region.close()
    return LINK, [other]


def no_power_of_two(descriptor: int) -> tuple[ShmLinkBody, list[int]]:
    return ShmLinkBody((1 << 20) - 64, SIZE - 128), [os.dup(descriptor)]


def sizes_that_differ(descriptor: int) -> tuple[ShmLinkBody, list[int]]:
    return ShmLinkBody(1 << 19, SIZE), [os.dup(descriptor)]


def _spoiled(field: str, value: bytes) -> Forge:
    def forge(descriptor: int) -> tuple[ShmLinkBody, list[int]]:
        os.pwrite(descriptor, value, offsets(ShmHeader)[field])
        return LINK, [os.dup(descriptor)]

    forge.__name__ = field
    return forge


FORGES = [
    unsealed,
    shrinkable,
    a_pipe,
    no_descriptor,
    two_descriptors,
    a_smaller_region,
    no_power_of_two,
    sizes_that_differ,
    _spoiled("magic", b"OFL-SHN\0"),
    _spoiled("version", bytes(8)),
    _spoiled("ring_bytes", (1 << 19).to_bytes(8, "little")),
    _spoiled("region_bytes", (1 << 30).to_bytes(8, "little")),
]


@pytest.mark.parametrize("forge", FORGES, ids=lambda forge: forge.__name__)
def test_a_region_that_is_not_as_it_must_be_is_not_used(rig: ShmRig, forge: Forge) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))

    def link(control: FrameSocket) -> ShmWire:
        control.expect(Type.LINK)
        region, descriptor = Region.make(1 << 20)
        region.close()
        body, passed = forge(descriptor)
        control.send_with(Frame(Type.LINK, body=body.pack()), passed)
        for one in (descriptor, *passed):
            os.close(one)
        control.receive()  # the client leaves without a word
        raise AssertionError

    connecting = rig.connecting()
    with pytest.raises(Exception, match="the socket ended"):
        rig.accept(link)
    with pytest.raises(TransportError) as refused:
        connecting.result()
    print(refused.value)
    eventually(lambda: len(os.listdir("/proc/self/fd")) == descriptors, "no descriptor is left")


def test_a_wish_that_the_document_excludes_is_refused(rig: ShmRig) -> None:
    server, endpoint = rig.harness.echo()

    def asking(body: ShmLinkBody) -> Callable[[FrameSocket], ShmWire]:
        def link(control: FrameSocket) -> ShmWire:
            control.send(Frame(Type.LINK, body=body.pack()))
            raise AnsweredError(control.receive())

        return link

    for body in (
        ShmLinkBody(0, 0),
        ShmLinkBody(100_000, 0),
        ShmLinkBody(1 << 21, 0),
        ShmLinkBody(1 << 18, 1),
    ):
        with pytest.raises(AnsweredError) as refused:
            rig.client_peer(endpoint, asking(body))
        assert refused.value.frame.type == Type.REFUSE, body
        print(refused.value)
    assert server.counters()["disconnects"] == server.counters()["accepted"]
