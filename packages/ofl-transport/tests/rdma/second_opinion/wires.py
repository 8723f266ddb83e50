"""What carries frames: `Wire` says it for every wire, `SocketWire` does it over the socket of the negotiation (TCP)."""

import select
from dataclasses import dataclass
from typing import Protocol

from rdma.second_opinion.control import FrameSocket
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.records import PlacementRecord, Type, WireFaultError, require


@dataclass(frozen=True)
class Placed:
    """A write with immediate came: the reply of the call in this slot lies where the request said."""

    slot: int
    nbytes: int
    writes: int
    """RDMA WRITEs that came before it, as its immediate says."""


Arrival = Frame | Placed


@dataclass(frozen=True)
class Room:
    """Where a reply shall go: in the region of a client that can be written, else only how much fits."""

    offset: int
    nbytes: int


class Wire(Protocol):
    """Frames in both directions, each waited for with a limit."""

    @property
    def patience_s(self) -> float:
        """The limit of every wait that has none of its own."""

    def send(self, frame: Frame) -> None:
        """Raises EndedError, TimeoutError."""

    def poll(self, timeout_s: float) -> list[Arrival]:
        """What has come, waiting for the first.  Raises EndedError, and WireFaultError for what may not come."""

    def placement(self, room: Room) -> PlacementRecord:
        """Where a server shall write this reply."""

    def placed_body(self, room: Room, nbytes: int) -> bytes:
        """Of a reply that was written, from the start of its room."""

    def reply(self, sequence: int, body: bytes, placement: PlacementRecord | None) -> None:
        """A frame, or writes."""

    def close(self) -> None: ...


class TwoSidedWire:
    """One whose peer writes nowhere: a placed reply is a frame too, and the receiving CPU puts it where it belongs."""

    def send(self, frame: Frame) -> None:
        raise NotImplementedError

    def placement(self, room: Room) -> PlacementRecord:
        return PlacementRecord(0, 0, room.nbytes)

    def placed_body(self, room: Room, nbytes: int) -> bytes:
        raise WireFaultError("a reply was written over a wire without one-sided writes")

    def reply(self, sequence: int, body: bytes, placement: PlacementRecord | None) -> None:
        if placement is not None:
            require((placement.address, placement.key) == (0, 0), f"{placement} without one-sided writes")
        self.send(Frame(Type.REPLY, sequence, body))


class SocketWire(TwoSidedWire):
    """The same socket goes on with the data."""

    def __init__(self, control: FrameSocket) -> None:
        self.control = control
        self.patience_s = control.patience_s

    def send(self, frame: Frame) -> None:
        self.control.send(frame)

    def poll(self, timeout_s: float) -> list[Arrival]:
        if frames := self.control.poll():
            return list(frames)
        readable, _, _ = select.select([self.control], [], [], timeout_s)
        return list(self.control.poll()) if readable else []

    def close(self) -> None:
        self.control.close()
