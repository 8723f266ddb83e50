"""A worker without weights: keeps windows by the letter of the contract and drafts from a digest of them.

Drafts depend on every byte of the window and on the anchor, so that one wrong row anywhere shows in the ids.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from ofl.contract.dspark_v1 import (
    EntryFlag,
    Envelope,
    Goodbye,
    GoodbyeReply,
    Hello,
    HelloFlag,
    HelloReply,
    Kind,
    Op,
    Ping,
    PingReply,
    Refused,
    Reply,
    RequestStatus,
    Shape,
    Status,
    Step,
    StepEntry,
    StepReply,
    StepReplyEntry,
    decode_request,
    encode_reply,
    peek,
)
from ofl.contract.dspark_v1.rules import first_mismatch, first_needed
from ofl.contract.records import Buffer


def drafts_of(rows: Sequence[bytes], anchor: int, n_out: int, vocabulary: int) -> tuple[int, ...]:
    """The ids this worker drafts from a window: a digest of its bytes and of the anchor."""
    digest = zlib.crc32(b"".join(rows), anchor)
    return tuple(zlib.crc32(digest.to_bytes(4, "little"), index) % vocabulary for index in range(n_out))


@dataclass
class HeldWindow:
    """One slot: rows of positions start .. start + len(rows) - 1."""

    generation: int
    start: int
    rows: list[bytes] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.rows)


@dataclass
class SimulatedWorker:
    """Answers whole messages, one connection after the other.

    refuse_with: status for every STEP while it is set.  fail_slots: slots whose next entry fails in the
    drafter.
    """

    shape: Shape
    boot_nonce: int = 1
    refuse_with: Status | None = None
    fail_slots: set[int] = field(default_factory=set)
    epoch: int = 0
    windows: dict[int, HeldWindow] = field(default_factory=dict)

    def restart(self) -> None:
        """Another life: nothing is held and no session is open."""
        self.boot_nonce += 1
        self.forget_session()

    def open_session(self, epoch: int) -> None:
        """As if a new connection had said HELLO."""
        self.epoch = epoch
        self.windows.clear()

    def forget_session(self) -> None:
        """Answer NO_SESSION from now on."""
        self.epoch = 0
        self.windows.clear()

    def held_slots(self) -> list[int]:
        """Slots that hold rows."""
        return list(self.windows)

    def forget_slot(self, slot: int) -> None:
        """Answer NEEDS_RESET for it."""
        del self.windows[slot]

    def newer_generation(self, slot: int) -> None:
        """Answer STALE_GENERATION for it."""
        self.windows[slot].generation += 1000

    def fail_once(self, slot: int) -> None:
        """Fail in the drafter when it is asked for next."""
        self.fail_slots.add(slot)

    def recover(self) -> None:
        """The round is over: refuse_with and fail_once are undone."""
        self.refuse_with = None
        self.fail_slots.clear()

    def answer(self, body: Buffer) -> bytes:
        """The reply to one request."""
        head = peek(body, Kind.REQUEST)
        _, request = decode_request(body, self.shape)
        reply = self._reply(head, request)
        status = reply.status if isinstance(reply, Refused) else Status.OK
        envelope = Envelope(head.op, head.epoch, head.round, status)
        return b"".join(encode_reply(envelope, reply, request, self.shape))

    def _reply(self, head: Envelope, request: object) -> Reply:
        if isinstance(request, Hello):
            return self._hello(head, request)
        if isinstance(request, Ping):
            return PingReply(request.payload, self.boot_nonce)
        if isinstance(request, Goodbye):
            self.epoch = 0
            self.windows.clear()
            return GoodbyeReply()
        assert isinstance(request, Step), request
        if self.refuse_with is not None:
            return Refused(Op.STEP, self.refuse_with, "step", "as the test asks")
        if self.epoch != head.epoch:
            return Refused(Op.STEP, Status.NO_SESSION, "header.epoch", f"no session of epoch {head.epoch}")
        rows = [bytes(part) for part in request.rows]
        pairs = zip(request.entries, rows, strict=True)
        return StepReply(3, 40, tuple(self._entry(entry, part) for entry, part in pairs))

    def _hello(self, head: Envelope, hello: Hello) -> Reply:
        ours = HelloReply("simulated", self.boot_nonce, HelloFlag.CONFIDENCE, self.shape)
        mismatch = first_mismatch(hello.shape, self.shape)
        if mismatch is not None:
            return Refused(Op.HELLO, Status.MISMATCH, *mismatch, ours)
        self.epoch = head.epoch
        self.windows.clear()
        return ours

    def _entry(self, entry: StepEntry, rows: bytes) -> StepReplyEntry:
        window = self.windows.get(entry.slot)
        if window is not None and window.generation > entry.generation:
            return self._failed(entry, RequestStatus.STALE_GENERATION)
        if entry.flags & EntryFlag.RESET:
            window = self.windows[entry.slot] = HeldWindow(entry.generation, entry.first_position)
        if window is None or window.generation != entry.generation:
            return self._failed(entry, RequestStatus.NEEDS_RESET)
        needed = max(entry.window_start, first_needed(self.shape.window, entry.anchor_position))
        if not window.start <= entry.first_position <= window.end or window.start > needed:
            return self._failed(entry, RequestStatus.GAP)
        size = self.shape.row_bytes
        del window.rows[entry.first_position - window.start :]
        window.rows += [rows[at : at + size] for at in range(0, len(rows), size)]
        self._trim(window)
        if entry.slot in self.fail_slots:
            self.fail_slots.discard(entry.slot)
            return self._failed(entry, RequestStatus.DRAFTER)
        return self._drafted(entry, window, needed)

    def _trim(self, window: HeldWindow) -> None:
        """Keep only what the contract demands, which is the least that an engine may count on."""
        surplus = first_needed(self.shape.window, window.end) - window.start
        if surplus > 0:
            del window.rows[:surplus]
            window.start += surplus

    def _drafted(self, entry: StepEntry, window: HeldWindow, needed: int) -> StepReplyEntry:
        context = window.rows[needed - window.start :]
        drafts = drafts_of(context, entry.anchor, entry.n_out, self.shape.vocabulary)
        return StepReplyEntry(
            slot=entry.slot,
            status=RequestStatus.OK,
            generation=entry.generation,
            window_start=window.start,
            window_end=window.end,
            drafts=drafts,
            confidences=(0.5,) * len(drafts),
            margins=(1.0,) * len(drafts),
        )

    def _failed(self, entry: StepEntry, status: RequestStatus) -> StepReplyEntry:
        window = self.windows.get(entry.slot) or HeldWindow(0, 0)
        return StepReplyEntry(entry.slot, status, window.generation, window.start, window.end, (), (), ())
