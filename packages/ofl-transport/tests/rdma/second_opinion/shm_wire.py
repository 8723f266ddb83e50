"""Frames over two rings, with bells on the control socket.

Owns sleeping and waking as docs/transport/shm.md has them.  One thread.
"""

import os
import select
import time

from rdma.second_opinion.control import EndedError, FrameSocket
from rdma.second_opinion.frames import Frame, FrameJoiner
from rdma.second_opinion.negotiation import expect_or_refusal
from rdma.second_opinion.records import ShmLinkBody, Type, require
from rdma.second_opinion.shm_region import CLOSED, Region, ShmHeader, fence, is_ring_size
from rdma.second_opinion.shm_ring import RingReader, RingWriter
from rdma.second_opinion.wires import Arrival, TwoSidedWire

RING_BYTES = 1 << 18
BELL = b"\a"


class ShmWire(TwoSidedWire):
    """ours, theirs: "client" and "server", or the other way around."""

    def __init__(self, control: FrameSocket, region: Region, ours: str, theirs: str) -> None:
        self.control, self.region = control, region
        self.patience_s = control.patience_s
        self.ours, self.theirs = region.end(ours), region.end(theirs)
        self.reader, self.writer = RingReader(region.ring(ours)), RingWriter(region.ring(theirs))
        self.bells = 0
        self._joiner = FrameJoiner(control.joiner.sender)
        self._joiner.body_bytes_max = control.joiner.body_bytes_max
        self._arrivals: list[Arrival] = []
        self._rang_for_sleep = 0
        self._rang_for_room = 0
        self._ended = False

    @staticmethod
    def as_client(control: FrameSocket, wish: int = RING_BYTES) -> "ShmWire":
        """Asks first.  Raises RefusedError."""
        control.send(Frame(Type.LINK, body=ShmLinkBody(wish, 0).pack()))
        told = ShmLinkBody.unpack(expect_or_refusal(control, Type.LINK).body)
        require(is_ring_size(told.ring_bytes), f"ring_bytes is {told.ring_bytes}")
        require(told.ring_bytes >= wish, "ring_bytes is smaller than our wish")
        require(len(control.descriptors) == 1, f"{len(control.descriptors)} descriptors came")
        descriptor = control.descriptors.pop()
        try:
            region = Region.attach(descriptor, told.ring_bytes, told.region_bytes)
        finally:
            os.close(descriptor)
        return ShmWire(control, region, "client", "server")

    @staticmethod
    def as_server(control: FrameSocket) -> "ShmWire":
        """Answers with the region."""
        wish = ShmLinkBody.unpack(control.expect(Type.LINK).body)
        require(is_ring_size(wish.ring_bytes), f"ring_bytes is {wish.ring_bytes}")
        require(wish.region_bytes == 0, f"region_bytes is {wish.region_bytes} from the client")
        ring_bytes = max(wish.ring_bytes, RING_BYTES)
        region, descriptor = Region.make(ring_bytes)
        try:
            body = ShmLinkBody(ring_bytes, ShmHeader.size() + 2 * ring_bytes).pack()
            control.send_with(Frame(Type.LINK, body=body), [descriptor])
        finally:
            os.close(descriptor)
        return ShmWire(control, region, "server", "client")

    def send(self, frame: Frame) -> None:
        rest = memoryview(frame.pack())
        limit = time.monotonic() + self.patience_s
        while rest:
            if self._ended:
                raise EndedError("the control socket ended")
            if count := self.writer.write(rest):
                rest = rest[count:]
                self._wake_reader()
            elif not self._find_room(limit):
                raise TimeoutError(f"there was no room for {len(rest)} bytes in {self.patience_s} s")

    def poll(self, timeout_s: float) -> list[Arrival]:
        limit = time.monotonic() + timeout_s
        while not self._arrivals and (self.look() or self._sleep(limit)):
            pass
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def count_bells(self) -> int:
        """Those that have come, ever."""
        self._take_bells()
        return self.bells

    def ring(self) -> None:
        """One bell, where the socket takes it: where it is full of bells, one more says nothing new."""
        try:
            self.control.socket.send(BELL)
        except (BlockingIOError, ConnectionError):
            return

    def close(self) -> None:
        self.ours.store("state", CLOSED)
        self.control.close()
        self.reader.close()
        self.writer.close()
        self.region.close()

    def _wake_reader(self) -> None:
        fence()
        sleeps = self.theirs.load("sleeps")
        if sleeps != self._rang_for_sleep:
            self._rang_for_sleep = sleeps
            self.ring()

    def _find_room(self, limit: float) -> bool:
        """False where there was none in time."""
        before = self.writer.taken
        self.writer.saw_taken(self.theirs.load("taken"))
        if self.writer.taken != before:
            return True
        self.ours.store("room_wanted", self.writer.position - len(self.writer.bytes) // 2)
        fence()
        self.writer.saw_taken(self.theirs.load("taken"))
        found = self.writer.taken != before or self.look() or self._sleep(limit)
        self.ours.store("room_wanted", 0)
        return found

    def look(self) -> bool:
        """Whether a record was here."""
        if not self.reader.ready:
            return False
        eighth = len(self.reader.bytes) // 8
        before = self.reader.position
        data = self.reader.read()
        self.ours.store("taken", self.reader.position)
        if before // eighth != self.reader.position // eighth:
            self._give_room()
        self._arrivals += self._joiner.feed_piece(data, "a record")
        return True

    def _give_room(self) -> None:
        fence()
        wanted = self.theirs.load("room_wanted")
        if wanted != 0 and wanted <= self.reader.position and wanted != self._rang_for_room:
            self._rang_for_room = wanted
            self.ring()

    def _sleep(self, limit: float) -> bool:
        """Until a bell, or the end.  Raises EndedError once all records before it were read."""
        self._take_bells()
        self.ours.store("heartbeat_ns", time.monotonic_ns())
        self.ours.store("sleeps", self.ours.load("sleeps") + 1)
        fence()
        if self.reader.ready:
            return True
        if self._ended:
            raise EndedError("the control socket ended")
        readable, _, _ = select.select([self.control], [], [], max(0.0, limit - time.monotonic()))
        self._take_bells()
        return bool(readable)

    def _take_bells(self) -> None:
        try:
            while not self._ended:
                bells = self.control.socket.recv(4096)
                self.bells += len(bells)
                self._ended = not bells
        except BlockingIOError:
            return
        except ConnectionError:
            self._ended = True
