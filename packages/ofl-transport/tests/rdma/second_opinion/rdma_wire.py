"""Frames over a queue pair: segments, credits, placed replies, and a control socket that must stay silent.

Owns the rules of the document's chapter RDMA.  `raw` lets a test break them on purpose.
"""

import select
import time
from collections.abc import Callable
from dataclasses import dataclass

from rdma.second_opinion.control import EndedError, FrameSocket
from rdma.second_opinion.credits import Credits
from rdma.second_opinion.frames import Frame, FrameJoiner
from rdma.second_opinion.negotiation import expect_or_refusal
from rdma.second_opinion.queue_pair import ACK_TIMEOUT, Completion, QueuePair, Route
from rdma.second_opinion.records import SLOTS, PlacementRecord, RdmaLinkBody, Type, require
from rdma.second_opinion.wires import Arrival, Placed, Room


def link_body(pair: QueuePair) -> RdmaLinkBody:
    return RdmaLinkBody(
        gid=pair.gid,
        queue_pair=pair.number,
        packet_sequence=pair.packet_sequence,
        receives=pair.receives,
        segment_bytes=pair.segment_bytes,
        mtu_bytes=pair.mtu_bytes,
    )


@dataclass(frozen=True)
class Device:
    """Which device to use and how.

    region_bytes: what the other end may write.  mtu_bytes: told to the other end and gone by here, None for the port's
    own.  tell: makes the link frame's body.
    """

    name: str
    address: str
    receives: int = 64
    segment_bytes: int = 16384
    region_bytes: int = 0
    ack_timeout: int = ACK_TIMEOUT
    mtu_bytes: int | None = None
    tell: Callable[[QueuePair], RdmaLinkBody] = link_body

    def as_client(self, control: FrameSocket) -> "RdmaWire":
        """Asks first.  The wire is ready to send; its first segment is the caller's.  Raises RefusedError."""
        pair = self._open()
        control.send(Frame(Type.LINK, body=self.tell(pair).pack()))
        return RdmaWire(control, pair, RdmaLinkBody.unpack(expect_or_refusal(control, Type.LINK).body))

    def as_server(self, control: FrameSocket) -> "RdmaWire":
        """Answers.  Nothing may be sent before the client's first segment is there."""
        theirs = RdmaLinkBody.unpack(control.expect(Type.LINK).body)
        pair = self._open()
        wire = RdmaWire(control, pair, theirs)
        control.send(Frame(Type.LINK, body=self.tell(pair).pack()))
        return wire

    def _open(self) -> QueuePair:
        return QueuePair(
            self.name,
            self.address,
            receives=self.receives,
            segment_bytes=self.segment_bytes,
            region_bytes=self.region_bytes,
            ack_timeout=self.ack_timeout,
            mtu_bytes=self.mtu_bytes,
        )


class RdmaWire:
    """Made by `Device`, once the other end's link frame is there."""

    def __init__(self, control: FrameSocket, pair: QueuePair, theirs: RdmaLinkBody) -> None:
        self.control, self.pair, self.theirs = control, pair, theirs
        self.patience_s = control.patience_s
        self.segment_bytes = min(pair.segment_bytes, theirs.segment_bytes)
        self.credits = Credits(pair.receives, theirs.receives)
        self.tells = True
        """False: keeps to itself which receives it has posted anew."""
        self._joiner = FrameJoiner(control.joiner.sender)
        self._joiner.body_bytes_max = control.joiner.body_bytes_max
        self._arrivals: list[Arrival] = []
        self._statuses: dict[int, int] = {}
        self._failed: EndedError | None = None
        mtu_bytes = min(pair.mtu_bytes, theirs.mtu_bytes)
        pair.connect_to(Route(theirs.gid, theirs.queue_pair, theirs.packet_sequence, mtu_bytes))

    def send(self, frame: Frame) -> None:
        data = frame.pack()
        for start in range(0, len(data), self.segment_bytes):
            self.send_segment(data[start : start + self.segment_bytes])

    def send_segment(self, data: bytes, patience_s: float | None = None) -> int:
        """One SEND with immediate, as soon as there is a receive for it.  Returns its number.  Raises TimeoutError."""
        self._until(
            lambda: self.credits.may_send and not self.pair.full, "a receive of the other end", patience_s
        )
        return self.raw(data, self._tell())

    def raw(self, data: bytes, immediate: int | None) -> int:
        """One SEND, whatever the rules say.  Returns its number."""
        self.credits.sent()
        return self.pair.send(data, immediate)

    def placement(self, room: Room) -> PlacementRecord:
        return PlacementRecord(self.pair.region.buf + room.offset, self.pair.region.rkey, room.nbytes)

    def placed_body(self, room: Room, nbytes: int) -> bytes:
        return self.region(room.offset, nbytes)

    def region(self, offset: int, nbytes: int) -> bytes:
        """What lies in the region that the other end may write."""
        return bytes(self.pair.region.read(nbytes, offset)) if nbytes else b""

    def reply(self, sequence: int, body: bytes, placement: PlacementRecord | None) -> None:
        if placement is None:
            self.send(Frame(Type.REPLY, sequence, body))
        else:
            self.place(body, placement, sequence % SLOTS)

    def place(self, body: bytes, placement: PlacementRecord, slot: int) -> list[int]:
        """A placed reply, the last write with immediate.  Returns the numbers of the writes."""
        size, address, key = self.segment_bytes, placement.address, placement.key
        starts = range(0, len(body) - size, size)
        writes = [self.write(body[at : at + size], address + at, key) for at in starts]
        at = len(writes) * size
        return [*writes, self.place_rest(body[at:], address + at, key, len(writes) * SLOTS + slot)]

    def write(self, data: bytes, address: int, key: int) -> int:
        """An RDMA WRITE, which the other end's CPU does not hear of.  Returns its number."""
        self._until(lambda: not self.pair.full, "room for a post")
        return self.pair.write(data, address, key)

    def place_rest(self, data: bytes, address: int, key: int, immediate: int) -> int:
        """The write with immediate of a placed reply.  Returns its number."""
        self._until(lambda: self.credits.may_send and not self.pair.full, "a receive of the other end")
        self.credits.sent()
        return self.pair.write(data, address, key, immediate)

    def status_of(self, post: int) -> int:
        """The work completion status of a post, once it is there, whatever else has ended meanwhile."""
        limit = time.monotonic() + self.patience_s
        while post not in self._statuses:
            if not self._look() and not self._wait([self.pair], limit):
                raise TimeoutError(f"post {post} did not complete in {self.patience_s} s")
        return self._statuses[post]

    def poll(self, timeout_s: float) -> list[Arrival]:
        limit = time.monotonic() + timeout_s
        while not self._arrivals and (self._look() or self._sleep(limit)):
            pass
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def close(self) -> None:
        self.pair.close()
        self.control.close()

    def _tell(self) -> int:
        return self.credits.tell() if self.tells else 0

    def _until(self, holds: Callable[[], bool], what: str, patience_s: float | None = None) -> None:
        patience_s = self.patience_s if patience_s is None else patience_s
        limit = time.monotonic() + patience_s
        while not holds():
            if not self._look() and not self._sleep(limit):
                raise TimeoutError(f"there was not {what} in {patience_s} s")

    def _look(self) -> bool:
        """Whether anything has completed."""
        completions = self.pair.poll()
        for completion in completions:
            self._completed(completion)
        if self.tells and self.credits.update_is_due and not self.pair.full and self._failed is None:
            self.raw(b"", self.credits.tell())
        return bool(completions)

    def _sleep(self, limit: float) -> bool:
        """Until something has happened, which came before the end of either channel.  Raises EndedError."""
        if self._failed is not None:
            raise self._failed
        if self.control not in (ready := self._wait([self.pair, self.control], limit)):
            return bool(ready)
        try:
            frames = self.control.poll()
        except EndedError:
            if self._look():
                return True
            raise
        require(not frames and not self.control.joiner.halfway, "there is a byte on the control socket")
        return True

    def _wait(self, ends: list[QueuePair | FrameSocket], limit: float) -> list[QueuePair | FrameSocket]:
        readable, _, _ = select.select(ends, [], [], max(0.0, limit - time.monotonic()))
        if self.pair in readable:
            self.pair.acknowledge()
        return list(readable)

    def _completed(self, completion: Completion) -> None:
        if completion.post is not None:
            self._statuses[completion.post] = completion.status
        if not completion.good:
            self._failed = EndedError(f"the queue pair is in error: status {completion.status}")
        elif completion.placed:
            self._placed(completion)
        elif completion.post is None:
            self._segment(completion)

    def _placed(self, completion: Completion) -> None:
        self.credits.placed()
        immediate = completion.immediate
        assert immediate is not None, "what was placed without one, no receive tells of"
        writes, slot = divmod(immediate, SLOTS)
        self._arrivals.append(Placed(slot, writes * self.segment_bytes + completion.nbytes, writes))

    def _segment(self, completion: Completion) -> None:
        data = completion.data
        require(completion.immediate is not None, "a SEND came without an immediate")
        self.credits.received(len(data), completion.immediate or 0)
        require(len(data) <= self.segment_bytes, f"a segment has {len(data)} bytes")
        if data:
            self._arrivals += self._joiner.feed_piece(data, "a segment")
