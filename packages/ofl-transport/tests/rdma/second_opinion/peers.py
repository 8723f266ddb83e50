"""The two ends of a connection in the second opinion: `ClientPeer` and `ServerPeer`.

Own the calls: which numbers are open, and what may still come for one.  One thread; heartbeats are sent while it
waits for something, unless `beats` is False.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rdma.second_opinion.control import EndedError
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.negotiation import Agreement
from rdma.second_opinion.records import PLACED, SLOTS, PlacementRecord, Transport, Type, require
from rdma.second_opinion.wires import Arrival, Placed, Room, Wire

W = TypeVar("W", bound=Wire)


class Peer(Generic[W]):
    """What both ends do: wait, and show signs of life meanwhile."""

    def __init__(self, wire: W, agreement: Agreement) -> None:
        self.wire, self.agreement = wire, agreement
        self.patience_s = wire.patience_s
        self.beats = True
        self.heartbeats = 0
        """That have come."""
        self._inbox: list[Arrival] = []
        self.sent_at = time.monotonic()
        """When the last thing was sent, or a little before."""

    @property
    def one_sided(self) -> bool:
        """A placed reply is written, and no frame."""
        return self.agreement.connect.transport == Transport.RDMA

    def send(self, frame: Frame) -> None:
        self.sent_at = time.monotonic()
        self.wire.send(frame)

    def pump(self, seconds: float) -> None:
        """Let things come for so long."""
        limit = time.monotonic() + seconds
        while (left := limit - time.monotonic()) > 0:
            self._pump(left)

    def pump_until(self, holds: Callable[[], bool], what: str) -> None:
        """Let things come until it holds.  Raises TimeoutError, with what was waited for."""
        limit = time.monotonic() + self.patience_s
        while not holds():
            if time.monotonic() >= limit:
                raise TimeoutError(f"did not happen in {self.patience_s} s: {what}")
            self._pump(self.patience_s)

    def heartbeats_s(self, count: int) -> float:
        """Wait for so many; returns the seconds that it took.  Raises TimeoutError."""
        begun, target = time.monotonic(), self.heartbeats + count
        self.pump_until(lambda: self.heartbeats >= target, f"{count} heartbeats")
        return time.monotonic() - begun

    def arrival(self) -> Arrival:
        """The next that is no heartbeat.  Raises EndedError for a close frame too, TimeoutError."""
        self.pump_until(lambda: bool(self._inbox), "anything came")
        arrival = self._inbox.pop(0)
        if isinstance(arrival, Frame) and arrival.type == Type.CLOSE:
            raise EndedError("a close frame came", arrival.text())
        return arrival

    def ended(self) -> EndedError:
        """Wait for the end, whatever comes before it."""
        try:
            while True:
                self.arrival()
        except EndedError as error:
            return error

    def say_goodbye(self, reason: str) -> None:
        self.send(Frame(Type.CLOSE, body=reason.encode("ascii")))

    def close(self) -> None:
        self.wire.close()

    def _pump(self, timeout_s: float) -> None:
        half_s = self.agreement.connect.heartbeat_ms / 2000
        if self.beats and time.monotonic() - self.sent_at >= half_s:
            self.send(Frame(Type.HEARTBEAT))
        for arrival in self.wire.poll(min(timeout_s, half_s)):
            if isinstance(arrival, Frame) and arrival.type == Type.HEARTBEAT:
                self.heartbeats += 1
            else:
                self._inbox.append(arrival)


@dataclass
class Call:
    sequence: int
    room: Room | None
    cancelled: bool = False


@dataclass(frozen=True)
class Answer:
    """What became of a call.  placed: the body was written into its room.  cancelled: there is no body."""

    sequence: int
    body: bytes = b""
    placed: bool = False
    cancelled: bool = False


class ClientPeer(Peer[W]):
    """The client's end.  Its first segment, a heartbeat, is sent by `begin`."""

    def __init__(self, wire: W, agreement: Agreement) -> None:
        super().__init__(wire, agreement)
        self._calls: dict[int, Call] = {}
        """By slot: until their answer, cancelled placed ones included."""
        self._forgotten: set[int] = set()
        """Cancelled calls whose reply, if it comes, is dropped."""
        self._number = 0

    def begin(self) -> None:
        self.send(Frame(Type.HEARTBEAT))

    def request(self, body: bytes, room: Room | None = None) -> int:
        """Returns the call's number."""
        assert len(self._calls) < self.agreement.accept.calls_max, "too many calls are open"
        self._number += 1
        while self._number % SLOTS in self._calls:
            self._number += 1
        self._calls[self._number % SLOTS] = Call(self._number, room)
        placement = b"" if room is None else self.wire.placement(room).pack()
        flags = 0 if room is None else PLACED
        self.send(Frame(Type.REQUEST, self._number, placement + body, flags))
        return self._number

    def cancel(self, sequence: int) -> None:
        call = self._calls[sequence % SLOTS]
        assert call.sequence == sequence
        call.cancelled = True
        if call.room is None:
            del self._calls[sequence % SLOTS]
            self._forgotten.add(sequence)
        self.send(Frame(Type.CANCEL, sequence))

    def forget(self, sequence: int) -> None:
        """For a test that has seen its end itself."""
        del self._calls[sequence % SLOTS]

    def answer(self) -> Answer:
        """What became of the next call that ended.  Raises WireFaultError, EndedError."""
        arrival = self.arrival()
        while isinstance(arrival, Frame) and arrival.sequence in self._forgotten:
            require(arrival.type == Type.REPLY, "a cancelled frame for a call without placement")
            self._forgotten.remove(arrival.sequence)
            arrival = self.arrival()
        if isinstance(arrival, Placed):
            return self._placed(arrival)
        call = self._calls.pop(arrival.slot, None)
        require(
            call is not None and call.sequence == arrival.sequence, f"call {arrival.sequence} is not open"
        )
        assert call is not None
        if arrival.type == Type.CANCELLED:
            require(
                call.cancelled and call.room is not None, "a cancelled frame for no cancelled placed call"
            )
            return Answer(call.sequence, cancelled=True)
        require(call.room is None or not self.one_sided, "a reply frame for a placed call")
        room = call.room.nbytes if call.room else self.agreement.accept.frame_bytes_max
        require(len(arrival.body) <= room, f"a reply of {len(arrival.body)} bytes for {room}")
        return Answer(call.sequence, arrival.body)

    def answers(self, count: int) -> dict[int, Answer]:
        """The next ones, by number of the call."""
        found = [self.answer() for _ in range(count)]
        return {answer.sequence: answer for answer in found}

    def _placed(self, arrival: Placed) -> Answer:
        call = self._calls.pop(arrival.slot, None)
        require(call is not None and call.room is not None, f"slot {arrival.slot} has no placed call")
        assert call is not None
        assert call.room is not None
        require(
            arrival.nbytes <= call.room.nbytes, f"a reply of {arrival.nbytes} for {call.room.nbytes} bytes"
        )
        return Answer(call.sequence, self.wire.placed_body(call.room, arrival.nbytes), placed=True)


@dataclass(frozen=True)
class Request:
    """As it came."""

    sequence: int
    body: bytes
    placement: PlacementRecord | None

    @property
    def slot(self) -> int:
        return self.sequence % SLOTS

    @property
    def room(self) -> PlacementRecord:
        assert self.placement is not None
        return self.placement


@dataclass(frozen=True)
class Cancel:
    sequence: int


class ServerPeer(Peer[W]):
    """The server's end."""

    def __init__(self, wire: W, agreement: Agreement) -> None:
        super().__init__(wire, agreement)
        self.open: dict[int, Request] = {}
        """By slot: requests neither answered nor cancelled, and of those that are written their cancelled ones."""
        self._newest = 0

    def begin(self) -> None:
        """Wait for the client's first segment, which must be a heartbeat."""
        limit = time.monotonic() + self.patience_s
        while self.heartbeats == 0:
            require(not self._inbox, "the first segment is no heartbeat")
            if time.monotonic() >= limit:
                raise TimeoutError(f"no first segment came in {self.patience_s} s")
            for arrival in self.wire.poll(self.patience_s):
                if isinstance(arrival, Frame) and arrival.type == Type.HEARTBEAT:
                    self.heartbeats += 1
                else:
                    self._inbox.append(arrival)

    def request(self) -> Request:
        """The next arrival, which must be one."""
        request = self.event()
        require(isinstance(request, Request), f"{request} is no request")
        assert isinstance(request, Request)
        return request

    def cancel(self) -> Cancel:
        """The next arrival, which must be one."""
        cancel = self.event()
        require(isinstance(cancel, Cancel), f"{cancel} is no cancel")
        assert isinstance(cancel, Cancel)
        return cancel

    def event(self) -> Request | Cancel:
        """Raises WireFaultError, EndedError."""
        frame = self.arrival()
        require(isinstance(frame, Frame), "a client writes nothing")
        assert isinstance(frame, Frame)
        if frame.type == Type.CANCEL:
            return self._cancelled(frame)
        placement, body = frame.placement()
        request = Request(frame.sequence, body, placement)
        require(request.sequence > self._newest, f"call {request.sequence} comes after {self._newest}")
        self._newest = request.sequence
        require(request.slot not in self.open, f"slot {request.slot} is in use")
        self.open[request.slot] = request
        require(len(self.open) <= self.agreement.accept.calls_max, "too many calls are open")
        return request

    def reply(self, request: Request, body: bytes) -> None:
        """As the wire has it: a frame, or writes into the request's room."""
        self.sent_at = time.monotonic()
        self.wire.reply(request.sequence, body, request.placement)
        self.open.pop(request.slot, None)

    def settle(self, request: Request) -> None:
        """Answer the cancel of a placed call."""
        self.send(Frame(Type.CANCELLED, request.sequence))
        if self.open.get(request.slot) == request:
            del self.open[request.slot]

    def _cancelled(self, frame: Frame) -> Cancel:
        require(frame.sequence <= self._newest, f"call {frame.sequence} was never made")
        request = self.open.get(frame.slot)
        held = request is not None and request.placement is not None and self.one_sided
        if request is not None and request.sequence == frame.sequence and not held:
            del self.open[frame.slot]  # nothing of it is written any more: the slot is free
        return Cancel(frame.sequence)
