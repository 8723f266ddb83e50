"""A WRITE that is held past the deadline of its call: it lands where it may, in quarantine, and nowhere else.

The server is the second opinion's, which posts the WRITE exactly when the test says.  A generation cannot stop a WRITE
that is posted, so the client must not have given the memory to anybody until it knows that none can come.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Unpack

import pytest
from ofl.client import Client
from ofl.errors import CancelledError, DeadlineError, PeerLostError, QuarantinedError
from ofl.memory import Buffer
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.peers import Cancel, Request, ServerPeer
from rdma.second_opinion.rdma_wire import RdmaWire
from rdma.second_opinion.records import Type
from rdma.second_opinion_rdma_rig import MARGIN, POISON, RdmaRig, rdma_rig
from transport_harness import ClientOptions
from transport_times import after, eventually, soon, span_ns

ROOM = 40_000
"""Two segments of 16,384 and a rest."""
SUCCESS = 0
LATE, FALLBACK = b"L", b"F"


@pytest.fixture
def rig(rdma_device: str, rdma_address: str) -> Iterator[RdmaRig]:
    with rdma_rig(rdma_device, rdma_address) as made:
        yield made


@dataclass
class Held:
    """A placed call that ran into its deadline and was cancelled while the server held its WRITE.

    The buffer: a margin, the call's room, a margin, the fallback's room, a margin; all of it poisoned.
    """

    client: Client
    peer: ServerPeer[RdmaWire]
    buffer: Buffer
    sequence: int
    request: Request

    room = slice(MARGIN, MARGIN + ROOM)
    other = slice(2 * MARGIN + ROOM, 2 * MARGIN + 2 * ROOM)

    @staticmethod
    def cancelled(rig: RdmaRig, **options: Unpack[ClientOptions]) -> "Held":
        connecting = rig.connecting(**options)
        peer = rig.accept()
        client = connecting.result()
        peer.begin()
        buffer = Buffer(3 * MARGIN + 2 * ROOM)
        buffer.view[:] = POISON * buffer.nbytes
        client.register(buffer)
        sequence = client.submit([b"late"], deadline_ns=soon(), into=buffer.range(MARGIN, ROOM))
        request = peer.request()
        assert (request.body, request.room.bytes) == (b"late", ROOM)
        with pytest.raises(DeadlineError):
            client.wait(sequence, deadline_ns=after(0.05))
        assert client.cancel(sequence) is False
        assert peer.cancel() == Cancel(sequence)
        return Held(client, peer, buffer, sequence, request)

    def is_quarantined(self) -> bool:
        """Neither settled, nor given to any call of any overlap."""
        if self.client.settled(self.sequence, deadline_ns=0):
            return False
        for offset, size in ((MARGIN, ROOM), (MARGIN + ROOM - 1, 2), (0, MARGIN + 1), (MARGIN + 500, 1)):
            with pytest.raises(QuarantinedError):
                self.client.submit([b"x"], deadline_ns=soon(), into=self.buffer.range(offset, size))
        with pytest.raises(CancelledError):
            self.client.wait(self.sequence, deadline_ns=soon())
        return True

    def is_free(self) -> bool:
        """Settled, and the same memory serves another call."""
        if not self.client.settled(self.sequence, deadline_ns=soon()):
            return False
        self.round_trip(self.room, b"again")
        return True

    def round_trip(self, where: slice, body: bytes) -> Request:
        """A placed call that is answered."""
        into = self.buffer.range(where.start, where.stop - where.start)
        sequence = self.client.submit([b"next"], deadline_ns=soon(), into=into)
        request = self.peer.request()  # judged: a request for the slot that is held would be a fault
        self.peer.reply(request, body)
        assert self.client.wait(sequence, deadline_ns=soon()) == body
        return request

    def write(self, pieces: int) -> list[int]:
        """Post the first pieces of the held reply, each of one segment, without immediate."""
        segment, place = self.peer.wire.segment_bytes, self.request.room
        return [
            self.peer.wire.write(LATE * segment, place.address + at * segment, place.key)
            for at in range(pieces)
        ]

    def rest(self, writes: int) -> int:
        """Post the write with immediate of the held reply."""
        at, place = writes * self.peer.wire.segment_bytes, self.request.room
        immediate = writes * 256 + self.request.slot
        return self.peer.wire.place_rest(LATE * (ROOM - at), place.address + at, place.key, immediate)

    def check(self, room: bytes, other: bytes) -> None:
        """What lies in both rooms, and that it lies nowhere else."""
        view = self.buffer.view
        assert bytes(view[self.room]) == room
        assert bytes(view[self.other]) == other
        for margin in (0, self.room.stop, self.other.stop):
            assert view[margin : margin + MARGIN] == POISON * MARGIN


POISONED = POISON * ROOM


@pytest.mark.smoke
def test_a_write_held_past_the_deadline_lands_in_quarantined_memory_and_nowhere_else(rig: RdmaRig) -> None:
    held = Held.cancelled(rig)
    assert held.is_quarantined()
    held.round_trip(held.other, FALLBACK * ROOM)
    held.check(POISONED, FALLBACK * ROOM)
    assert held.is_quarantined()
    segment = held.peer.wire.segment_bytes
    assert [held.peer.wire.status_of(post) for post in held.write(2)] == [SUCCESS, SUCCESS]
    # It has landed, and the client's CPU knows nothing of it.
    held.check(LATE * 2 * segment + POISON * (ROOM - 2 * segment), FALLBACK * ROOM)
    assert held.is_quarantined()
    held.round_trip(held.other, FALLBACK * (ROOM - 1))  # the connection goes on meanwhile
    assert held.is_quarantined()
    assert held.peer.wire.status_of(held.rest(2)) == SUCCESS
    # Its completion says that it was the last write of the call.
    assert held.client.settled(held.sequence, deadline_ns=soon())
    held.check(LATE * ROOM, FALLBACK * ROOM)
    with pytest.raises(CancelledError):  # a call that was given up stays so
        held.client.wait(held.sequence, deadline_ns=soon())
    assert held.is_free()
    held.check(b"again" + LATE * (ROOM - 5), FALLBACK * ROOM)


def test_a_cancelled_frame_ends_the_quarantine_and_nothing_has_been_written(rig: RdmaRig) -> None:
    held = Held.cancelled(rig)
    held.round_trip(held.other, FALLBACK * ROOM)
    assert held.is_quarantined()
    held.peer.settle(held.request)
    assert held.client.settled(held.sequence, deadline_ns=soon())
    held.check(POISONED, FALLBACK * ROOM)
    assert held.is_free()


def test_a_cancelled_frame_behind_a_part_of_the_reply_ends_the_quarantine_after_it(rig: RdmaRig) -> None:
    held = Held.cancelled(rig)
    held.write(1)
    held.peer.settle(held.request)  # on the same queue pair, so it comes after the write
    assert held.client.settled(held.sequence, deadline_ns=soon())
    segment = held.peer.wire.segment_bytes
    held.check(LATE * segment + POISON * (ROOM - segment), POISONED)
    assert held.is_free()


def test_the_slot_of_a_quarantined_call_is_not_used_until_the_call_is_settled(rig: RdmaRig) -> None:
    held = Held.cancelled(rig)
    slots = [held.round_trip(held.other, b"fine").slot for _ in range(260)]
    assert set(slots) == set(range(256)) - {held.request.slot}
    assert held.is_quarantined()
    held.peer.settle(held.request)
    assert held.client.settled(held.sequence, deadline_ns=soon())
    slots = [held.round_trip(held.other, b"fine").slot for _ in range(256)]
    assert held.request.slot in slots


def test_the_completion_of_one_call_does_not_free_the_memory_of_another(rig: RdmaRig) -> None:
    held = Held.cancelled(rig)
    into = held.buffer.range(held.other.start, ROOM)
    second = held.client.submit([b"second"], deadline_ns=soon(), into=into)
    request = held.peer.request()
    assert held.client.cancel(second) is False
    assert held.peer.cancel() == Cancel(second)
    held.peer.settle(request)
    assert held.client.settled(second, deadline_ns=soon())
    assert held.is_quarantined()
    held.peer.settle(held.request)
    assert held.is_free()


def closed(held: Held) -> None:
    held.client.close()


def told_to_go(held: Held) -> None:
    held.peer.say_goodbye("maintenance")


def control_socket_ended(held: Held) -> None:
    held.peer.wire.control.close()


def control_socket_broken(held: Held) -> None:
    held.peer.wire.control.send_bytes(b"x")


def fell_silent(held: Held) -> None:
    """The server stops, as a process that is frozen, and goes on after it was given up."""


def broke_the_rules(held: Held) -> None:
    held.peer.wire.raw(Frame(Type.HEARTBEAT).pack()[:12], 0)


@pytest.mark.parametrize(
    "end",
    [closed, told_to_go, control_socket_ended, control_socket_broken, fell_silent, broke_the_rules],
    ids=lambda end: end.__name__,
)
def test_once_the_connection_has_ended_the_memory_is_free_and_no_write_lands(
    rig: RdmaRig, end: Callable[[Held], None]
) -> None:
    held = Held.cancelled(rig, loss_ns=span_ns(1))
    assert held.is_quarantined()
    end(held)
    if end is not closed:
        eventually(lambda: not held.client.alive, "the client sees the end")
        with pytest.raises(PeerLostError):
            held.client.submit([b"x"], deadline_ns=soon())
    assert held.client.settled(held.sequence, deadline_ns=soon())
    own = bytes(range(250)) * (ROOM // 250)
    held.buffer.view[held.room] = own
    # The queue pair of the server still stands; what it posts meets one that takes nothing any more.
    post = held.write(1)[0]
    assert held.peer.wire.status_of(post) != SUCCESS
    held.check(own, POISONED)
    # And the process lives on, with the same memory.
    client, peer = rig.pair()
    peer.begin()
    client.register(held.buffer)
    sequence = client.submit([b"new"], deadline_ns=soon(), into=held.buffer.range(MARGIN, ROOM))
    peer.reply(peer.request(), b"new")
    assert bytes(client.wait(sequence, deadline_ns=soon())) == b"new"
    held.check(b"new" + own[3:], POISONED)


def test_a_call_that_is_open_when_the_connection_ends_is_written_by_nobody_either(rig: RdmaRig) -> None:
    client, peer = rig.pair()
    peer.begin()
    buffer = Buffer(ROOM)
    buffer.view[:] = POISONED
    client.register(buffer)
    sequence = client.submit([b"open"], deadline_ns=soon(), into=buffer.range())
    place = peer.request().room
    peer.wire.control.close()
    with pytest.raises(PeerLostError):
        client.wait(sequence, deadline_ns=soon())
    post = peer.wire.write(LATE * 1000, place.address, place.key)
    assert peer.wire.status_of(post) != SUCCESS
    assert buffer.view == POISONED


@pytest.mark.parametrize("end", ["closed", "lost"])
def test_a_write_that_is_under_way_when_the_connection_ends_never_lands_after_it(
    rig: RdmaRig, end: str
) -> None:
    size = 1 << 22
    own = bytes(range(256)) * (size // 256)
    cut_halfway = 0
    for _ in range(8):
        client, peer = rig.pair(rig.server_link(ack_timeout=15))
        peer.begin()
        buffer = Buffer(size)
        client.register(buffer)
        sequence = client.submit([b"late"], deadline_ns=soon(), into=buffer.range())
        place = peer.request().room
        assert client.cancel(sequence) is False
        peer.cancel()
        post = peer.wire.write(LATE * size, place.address, place.key)
        if end == "closed":
            client.close()
        else:
            peer.wire.control.close()
        assert client.settled(sequence, deadline_ns=soon())
        begun = buffer.view[:1] == LATE
        buffer.view[:] = own
        cut_halfway += begun and peer.wire.status_of(post) != SUCCESS
        assert buffer.view == own
    assert cut_halfway > 0, "no write was under way"
