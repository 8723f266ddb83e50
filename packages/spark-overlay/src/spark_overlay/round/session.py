"""The session as the core sees it: its limits, and the frames whose replies are outstanding.

Owns `held` of the slots on behalf of those frames: what a reply, a failure or the session's end says
about the worker's windows is said here.  Must never see row bytes.

Rules
1. At most one frame is awaited; it is the last of its round.  The others wait for an acknowledgement each.
2. A frame that went wrong says nothing about a slot that was RESET after it.
3. A slot is confirmed when it is held and no frame about it since its last RESET is unacknowledged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ofl.contract.dspark_v1 import Envelope, Refused, RequestStatus, Status, Step, StepReplyEntry
from ofl.contract.records import Buffer

from spark_overlay.round.counters import Counters
from spark_overlay.round.plan import Piece
from spark_overlay.round.slots import Slot

PENDING_MAX = 128
"""Unacknowledged frames after which the worker counts as not reading.  With plan.FRAMES_MAX it stays below the calls
that the transport keeps open at once (256)."""
SESSION_ENDS = (Status.NO_SESSION, Status.STALE_EPOCH, Status.DRAINING, Status.DRAFTER)
"""Refusals of a whole message after which no other would be served: connecting anew, with backoff, costs no round."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message to send.  parts stay valid until the next `begin`.  awaited: its reply ends the round."""

    round: int
    parts: Sequence[Buffer]
    n_bytes: int
    awaited: bool


@dataclass(frozen=True, slots=True)
class SentFrame:
    """What must be known of a frame until its reply is read.

    step: without its rows.  held_before: of each entry, the slot's held_end before it, -1 with RESET.
    """

    frame: Frame
    envelope: Envelope
    step: Step
    pieces: tuple[Piece, ...]
    held_before: tuple[int, ...]
    slots: frozenset[int]


class SessionState:
    """Frames of one session after the other.

    epoch: of the open session, 0 without one.  last_epoch: of the last one that was opened, 0 before the first.
    wanted: why a new one is needed, or empty.
    """

    def __init__(self, slots: Sequence[Slot], counters: Counters) -> None:
        self.epoch = self.last_epoch = 0
        self.wanted = ""
        self.awaited: SentFrame | None = None
        self.outstanding: dict[int, SentFrame] = {}
        self._slots = slots
        self._counters = counters

    def open(self, epoch: int) -> None:
        """A session whose worker holds nothing of ours yet."""
        self.close()
        self.epoch = self.last_epoch = epoch

    def close(self) -> None:
        """The session is over: nothing is held by a worker any more, and no reply of it counts."""
        self.epoch = 0
        self.wanted = ""
        self.awaited = None
        self.outstanding.clear()
        for slot in self._slots:
            slot.held = False

    def add(self, sent: SentFrame) -> None:
        """A frame was built and is about to leave."""
        if sent.frame.awaited:
            self.awaited = sent
        else:
            self.outstanding[sent.frame.round] = sent
            if len(self.outstanding) > PENDING_MAX:
                self.wanted = f"{len(self.outstanding)} append-only messages are unacknowledged"

    def take_awaited(self) -> SentFrame | None:
        """The awaited frame, which is no longer awaited."""
        sent, self.awaited = self.awaited, None
        return sent

    def confirmed(self, number: int) -> bool:
        """Whether everything sent of the slot since its last RESET was read as we sent it."""
        slot = self._slots[number]
        return slot.held and not any(
            sent.frame.round >= slot.reset_round and number in sent.slots
            for sent in self.outstanding.values()
        )

    def release(self, sent: SentFrame) -> None:
        """Nothing is known of the slots of this frame."""
        for number in sent.slots:
            self._doubt(number, sent.frame.round)

    def rewind(self, sent: SentFrame) -> None:
        """The frame may or may not have been read: its rows are to be sent again."""
        for entry, held_before in zip(sent.step.entries, sent.held_before, strict=True):
            if held_before < 0:
                self._slots[entry.slot].held = False
            else:
                self._slots[entry.slot].rewind(held_before)

    def entry_failed(self, entry: StepReplyEntry, round_number: int) -> None:
        """An entry of the frame of round_number was answered with a status other than OK."""
        self._doubt(entry.slot, round_number)
        if entry.status is RequestStatus.STALE_GENERATION:
            self.wanted = f"slot {entry.slot}: the worker knows generation {entry.generation}"
            self._counters.stale_generation_new_sessions += 1

    def refused(self, sent: SentFrame, reply: Refused) -> None:
        """The frame was refused as a whole."""
        self.release(sent)
        if reply.status in SESSION_ENDS:
            self.wanted = f"{reply.status.name}: {reply.said}"

    def not_sent(self, frames: Sequence[Frame]) -> None:
        """These last frames of the round never left, and the connection lives: as if never built."""
        for frame in reversed(frames):
            sent = self.take_awaited() if frame.awaited else self.outstanding.pop(frame.round)
            assert sent is not None, "a frame is taken back once"
            self.rewind(sent)
            self._counters.frames_sent -= 1
            self._counters.rows_sent -= sum(entry.n_rows for entry in sent.step.entries)
            self._counters.bytes_sent -= frame.n_bytes

    def _doubt(self, number: int, round_number: int) -> None:
        slot = self._slots[number]
        if slot.reset_round <= round_number:
            slot.held = False
