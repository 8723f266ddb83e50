"""One engine's rounds: what goes to the worker, what comes back, and what to do when it does not.

Rules
1. A round is `begin`, then `frames` where there is a session, then `finish` or `fail`; each exactly once.
2. `begin` keeps every valid row, also while there is no session: the ring is what makes a lost worker cheap.
3. Frames leave in the order given, all of them or the session is closed.  Only an awaited frame asks
   for drafts; the acknowledgements of the others are handed to `acknowledge` whenever they come.
4. A draft is returned only from a reply that the contract allows for the very frame of this round,
   entry by entry.
5. Whatever goes wrong, the round ends in zeros for the requests concerned, a counter with the reason,
   and slots that the next round brings in step again (`slots`).

Theory of operation.  The core never learns what the worker holds by asking: it knows what it sent in
order in this session, and treats every doubt as not held.  Any bytes from the worker end in a result;
ours are asserted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ofl.contract.dspark_v1 import (
    EntryFlag,
    Envelope,
    Op,
    Refused,
    RequestStatus,
    Shape,
    Status,
    Step,
    StepEntry,
    StepReply,
    StepReplyEntry,
    decode_reply,
    encode_request,
)
from ofl.contract.dspark_v1.rules import first_needed
from ofl.contract.records import Buffer, ContractError

from spark_overlay.round import reasons
from spark_overlay.round.counters import Counters
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.outcome import ResultBuffers
from spark_overlay.round.plan import (
    Piece,
    Plan,
    cut_frames,
    fit_budget,
    frame_bytes_needed,
    least_frame_rows,
    plan_slot,
)
from spark_overlay.round.ring import Ring, Rows
from spark_overlay.round.slots import GENERATION_MAX, Slot

PENDING_MAX = 128
"""Unacknowledged append-only frames after which the worker counts as not reading.  With FRAMES_MAX it stays
below the calls that the transport keeps open at once (256)."""
FRAMES_MAX = 64
"""Append-only frames in one round, at most."""
PARTS_MAX = 60
"""Parts of one frame, at most; the transport takes 64."""

_OUTCOMES = {
    RequestStatus.STALE_GENERATION: Outcome.STALE_GENERATION,
    RequestStatus.NEEDS_RESET: Outcome.NEEDS_RESET,
    RequestStatus.GAP: Outcome.GAP,
    RequestStatus.DRAFTER: Outcome.DRAFTER,
}


@dataclass(frozen=True, slots=True)
class Frame:
    """One message to send.  parts stay valid until the next `begin`.  awaited: its reply ends the round."""

    round: int
    parts: Sequence[Buffer]
    n_bytes: int
    awaited: bool


@dataclass(frozen=True, slots=True)
class _Sent:
    """A frame whose reply is outstanding.  held_before: each entry's held_end before it, -1 with RESET."""

    envelope: Envelope
    step: Step
    pieces: tuple[Piece, ...]
    held_before: tuple[int, ...]
    slots: frozenset[int]


class RoundCore:
    """The sans-IO round.  One thread uses it.

    shape: as in HELLO; its max_frame_bytes is our own limit.
    ring_rows: rows kept per slot.  round_bytes_max: bytes of rows in one round.
    Raises ValueError, naming the value, where the limits leave no room for a round.
    """

    def __init__(self, shape: Shape, *, ring_rows: int, round_bytes_max: int) -> None:
        if shape.window and ring_rows < shape.window:
            raise ValueError(f"ring_rows {ring_rows} is below the window of {shape.window} rows")
        if ring_rows < 1:
            raise ValueError(f"ring_rows {ring_rows} is below 1")
        if round_bytes_max < shape.row_bytes:
            raise ValueError(f"round_bytes_max {round_bytes_max} is below one row of {shape.row_bytes} bytes")
        self.shape = shape
        self.counters = Counters()
        self.last_bad_reply = ""
        self.new_session_wanted = ""
        self.last_worker_us = 0
        self.ring = Ring(shape.max_slots, ring_rows, shape.row_bytes)
        self.epoch = 0
        self._slots = [Slot() for _ in range(shape.max_slots)]
        self._buffers = ResultBuffers(shape.max_slots, shape.block_length)
        self._round_rows_max = round_bytes_max // shape.row_bytes
        self._budget_rows = 0
        self._max_frame_bytes = 0
        self._round = 0
        self._requests: Sequence[RoundRequest] = ()
        self._valid: list[int] = []
        self._rows: Rows = np.empty((0, shape.row_bytes), np.uint8)
        self._awaited: _Sent | None = None
        self.outstanding: dict[int, _Sent] = {}
        self.check_frame_limit(shape.max_frame_bytes)

    # --- sessions ---

    def check_frame_limit(self, max_frame_bytes: int) -> None:
        """Raises ValueError where a round could not be cut into frames of this size."""
        needed = frame_bytes_needed(self.shape.row_bytes, self.shape.max_slots, self.shape.block_length)
        if max_frame_bytes < needed:
            raise ValueError(f"max_frame_bytes {max_frame_bytes} is below the {needed} that a round needs")

    def open_session(self, epoch: int, max_frame_bytes: int) -> None:
        """A session whose worker holds nothing of ours yet.  max_frame_bytes: the smaller of both limits."""
        self.check_frame_limit(max_frame_bytes)
        self.close_session()
        self.epoch = epoch
        self._max_frame_bytes = max_frame_bytes
        frame_rows = least_frame_rows(max_frame_bytes, self.shape.row_bytes, self.shape.max_slots)
        self._budget_rows = min(self._round_rows_max, FRAMES_MAX * frame_rows)

    def close_session(self) -> None:
        """The session is over: nothing is held by a worker any more, and no reply of it counts."""
        self.epoch = 0
        self.new_session_wanted = ""
        self._awaited = None
        self.outstanding.clear()
        for slot in self._slots:
            slot.held = False

    def abort(self, n_requests: int, detail: str) -> RoundResult:
        """After a defect of ours: trust no row, slot or session; a failed result of its own arrays."""
        self.close_session()
        for slot in self._slots:
            slot.forget()
        self._requests = ()
        self._rows = self._rows[:0]
        self.counters.add(f"fallback_{reasons.INTERNAL_ERROR}")
        self.counters.rounds_failed += 1
        buffers = ResultBuffers(n_requests, self.shape.block_length)
        buffers.clear(n_requests)
        for index in range(n_requests):
            buffers.set_outcome(index, Outcome.ROUND_FAILED)
        return buffers.result(reasons.INTERNAL_ERROR, detail)

    def context_start(self, slot: int) -> int:
        """Lowest position of the context that the worker was last told to use for a slot."""
        return self._slots[slot].origin

    # --- a round, outwards ---

    def begin(self, requests: Sequence[RoundRequest], rows: Buffer) -> None:
        """Keep this step's rows.  rows: row i at i * row_bytes; held by the core until `finish` or `fail`.

        Raises ValueError where the requests and rows cannot be of one step (a defect of the caller).
        """
        if len(requests) > self.shape.max_slots:
            raise ValueError(f"{len(requests)} requests where {self.shape.max_slots} slots exist")
        if len({request.slot for request in requests}) != len(requests):
            raise ValueError("two requests share a slot")
        self._rows = np.frombuffer(rows, np.uint8).reshape(-1, self.shape.row_bytes)
        self._requests = requests
        self._awaited = None
        self._buffers.clear(len(requests))
        self._valid.clear()
        self.counters.rounds += 1
        for index, request in enumerate(requests):
            if self._is_valid(request):
                self._keep(request)
                self._valid.append(index)
            else:
                self._leave_out(index, Outcome.BAD_REQUEST, "req_bad")

    def frames(self) -> list[Frame]:
        """The messages of this round, in order; the last may be awaited.  Needs an open session."""
        assert self.epoch, "frames without a session"
        plans = [plan for index in self._valid if (plan := self._plan(index)) is not None]
        plans = fit_budget(plans, self._budget_rows)
        for plan in plans:
            if plan.pending:
                self._leave_out(plan.index, Outcome.RESYNC_PENDING, "req_resync_pending")
        self._count_plans(plans)
        cut = cut_frames(plans, self.shape.row_bytes, self._max_frame_bytes)
        frames = [self._frame(pieces, last=number == len(cut)) for number, pieces in enumerate(cut, 1)]
        if len(self.outstanding) > PENDING_MAX:
            self.new_session_wanted = f"{len(self.outstanding)} append-only messages are unacknowledged"
        return frames

    def not_sent(self, frames: Sequence[Frame]) -> None:
        """These last frames of the round never left, and the connection lives: as if never built."""
        for frame in reversed(frames):
            sent = self._awaited if frame.awaited else self.outstanding.pop(frame.round)
            assert sent is not None, "a frame is taken back once"
            self._rewind(sent)
            self.counters.frames_sent -= 1
            self.counters.rows_sent -= sum(entry.n_rows for entry in sent.step.entries)
            self.counters.bytes_sent -= frame.n_bytes
        if frames and frames[-1].awaited:
            self._awaited = None

    # --- a round, inwards ---

    def finish(self, body: Buffer | None) -> RoundResult:
        """The result, from the reply to the awaited frame; None where no frame was awaited."""
        sent, self._awaited = self._awaited, None
        assert (sent is None) == (body is None), "a reply belongs to an awaited frame"
        if sent is None or body is None:
            return self._close_round()
        self.counters.bytes_received += len(body)
        try:
            reply = decode_reply(body, sent.envelope, sent.step, self.shape)
        except ContractError as error:
            self.last_bad_reply = str(error)
            self._release(sent)
            return self._close_round(reasons.BAD_REPLY, str(error))
        if isinstance(reply, Refused):
            self._refused(sent, reply)
            return self._close_round(reasons.frame_reason(reply.status), f"{reply.field}: {reply.detail}")
        assert isinstance(reply, StepReply)
        self.last_worker_us = reply.queue_us + reply.draft_us
        for piece, entry in zip(sent.pieces, reply.entries, strict=True):
            self._apply(piece.plan, entry)
        return self._close_round()

    def fail(self, reason: str, detail: str = "") -> RoundResult:
        """The result of a round that got no reply, for one of `reasons`."""
        sent, self._awaited = self._awaited, None
        if sent is not None:
            if reason == reasons.TIMEOUT:
                self._rewind(sent)
            else:
                self._release(sent)
        return self._close_round(reason, detail)

    def acknowledge(self, round_number: int, body: Buffer) -> None:
        """The reply to an append-only frame, whenever it comes; one that is not known is ignored."""
        sent = self.outstanding.pop(round_number, None)
        if sent is None:
            return
        self.counters.bytes_received += len(body)
        try:
            reply = decode_reply(body, sent.envelope, sent.step, self.shape)
        except ContractError as error:
            self.last_bad_reply = str(error)
            self.counters.append_refused += 1
            self._release(sent)
            return
        if isinstance(reply, Refused):
            self.counters.append_refused += 1
            self._refused(sent, reply)
            return
        assert isinstance(reply, StepReply)
        for entry in reply.entries:
            if entry.status is not RequestStatus.OK:
                self.counters.append_refused += 1
                self._not_ok(entry, round_number)

    # --- inside ---

    def _is_valid(self, request: RoundRequest) -> bool:
        shape = self.shape
        return (
            0 <= request.slot < shape.max_slots
            and request.first_position >= 0
            and request.n_rows >= 0
            and request.first_position + request.n_rows <= shape.max_positions
            and 0 <= request.row_offset <= len(self._rows) - request.n_rows
            and 0 <= request.n_out <= shape.block_length
            and (request.n_out == 0 or 0 <= request.anchor < shape.vocabulary)
        )

    def _leave_out(self, index: int, outcome: Outcome, counter: str) -> None:
        self._buffers.set_outcome(index, outcome)
        self.counters.add(counter)
        if outcome is Outcome.BAD_REQUEST and 0 <= (number := self._requests[index].slot) < len(self._slots):
            self._slots[number].forget()

    def _keep(self, request: RoundRequest) -> None:
        slot = self._slots[request.slot]
        if not slot.continues(request.request_id, request.first_position, request.added):
            if slot.generation >= GENERATION_MAX:
                self.new_session_wanted = f"slot {request.slot} ran out of generations"
                slot.generation = 0
            slot.begin_generation(request.request_id, request.first_position)
            self.counters.generation_bumps += 1
            end = request.first_position + request.n_rows
            self.counters.partial_starts += request.first_position > first_needed(self.shape.window, end)
        elif request.first_position < slot.end:
            self.counters.rollbacks += 1
        slot.extend(request.first_position, request.n_rows, self.ring.ring_rows)
        rows = self._rows[request.row_offset : request.row_offset + request.n_rows]
        self.ring.store(request.slot, request.first_position, rows)

    def _plan(self, index: int) -> Plan | None:
        """The plan of a request; None where nothing is to be said of it."""
        request = self._requests[index]
        slot = self._slots[request.slot]
        n_out = request.n_out
        plan = plan_slot(index, request.slot, slot, request.first_position, n_out, self.shape.window)
        if plan.n_rows == 0 and (plan.reset or not n_out):
            if n_out:
                self._leave_out(index, Outcome.NO_CONTEXT, "req_no_context")
            return None
        return plan

    def _count_plans(self, plans: Sequence[Plan]) -> None:
        resent = sum(plan.n_resent for plan in plans)
        self.counters.resync_rows += resent
        self.counters.resync_rounds += resent > 0
        self.counters.rounds_n_out_cut += any(0 < plan.n_out < self.shape.block_length for plan in plans)

    def _frame(self, pieces: Sequence[Piece], last: bool) -> Frame:
        self._round += 1
        entries, rows, held_before = [], [], []
        for piece in pieces:
            held_before.append(-1 if piece.reset else self._slots[piece.plan.slot].held_end)
            entries.append(self._entry(piece, last))
            rows.append(self._row_bytes(piece))
        step = Step(tuple(entries), tuple(rows))
        awaited = any(entry.n_out for entry in entries)
        self.counters.partial_rounds += any(entry.flags & EntryFlag.PARTIAL_WINDOW for entry in entries)
        envelope = Envelope(Op.STEP, self.epoch, self._round)
        parts = encode_request(envelope, step, self.shape)
        if len(parts) > PARTS_MAX:
            parts = (b"".join(parts),)
        slots = frozenset(entry.slot for entry in entries)
        sent = _Sent(envelope, Step(step.entries, ()), tuple(pieces), tuple(held_before), slots)
        if awaited:
            self._awaited = sent
        else:
            self.outstanding[self._round] = sent
        n_bytes = sum(len(part) for part in parts)
        self.counters.frames_sent += 1
        self.counters.rows_sent += sum(entry.n_rows for entry in entries)
        self.counters.bytes_sent += n_bytes
        return Frame(self._round, parts, n_bytes, awaited)

    def _entry(self, piece: Piece, last: bool) -> StepEntry:
        """The entry of a piece; its slot counts as sent from here on."""
        plan = piece.plan
        slot, request, window = self._slots[plan.slot], self._requests[plan.index], self.shape.window
        slot.sent(piece.first, piece.end, piece.reset, window, self._round)
        n_out = plan.n_out if last else 0
        flags = EntryFlag.RESET if piece.reset else EntryFlag.NONE
        if n_out:
            flags |= EntryFlag.NEED_DRAFT
            if slot.origin > first_needed(window, piece.end):
                flags |= EntryFlag.PARTIAL_WINDOW
        return StepEntry(
            slot=plan.slot,
            flags=flags,
            generation=slot.generation,
            first_position=piece.first,
            n_rows=piece.end - piece.first,
            window_start=slot.origin,
            anchor=request.anchor if n_out else 0,
            n_out=n_out,
        )

    def _row_bytes(self, piece: Piece) -> memoryview:
        """The rows of a piece: from this step's buffer where they all are in it, else from the ring."""
        plan, count = piece.plan, piece.end - piece.first
        if piece.first >= plan.fresh_first:
            at = self._requests[plan.index].row_offset + piece.first - plan.fresh_first
            return self._rows[at : at + count].reshape(-1).data
        return self.ring.read(plan.slot, piece.first, count).reshape(-1).data

    def _apply(self, plan: Plan, entry: StepReplyEntry) -> None:
        """One entry of a good reply."""
        slot = self._slots[entry.slot]
        if entry.status is RequestStatus.OK:
            slot.held_start = max(entry.window_start, slot.origin)
            if entry.n_out and not self._confirmed(slot, entry.slot):
                self._leave_out(plan.index, Outcome.UNCONFIRMED, "req_unconfirmed")
            elif entry.n_out:
                self._buffers.draft(plan.index, entry.drafts, entry.confidences)
                self.counters.draft_tokens += entry.n_out
            return
        if self._requests[plan.index].n_out:
            self._buffers.set_outcome(plan.index, _OUTCOMES[entry.status])
        self.counters.add(f"req_status_{entry.status.name.lower()}")
        self._not_ok(entry, self._round)

    def _confirmed(self, slot: Slot, number: int) -> bool:
        """Whether everything sent of the slot since its last RESET was read as we sent it."""
        return slot.held and not any(
            sent.envelope.round >= slot.reset_round and number in sent.slots
            for sent in self.outstanding.values()
        )

    def _not_ok(self, entry: StepReplyEntry, round_number: int) -> None:
        slot = self._slots[entry.slot]
        if slot.reset_round <= round_number:
            slot.held = False
        if entry.status is RequestStatus.STALE_GENERATION:
            self.new_session_wanted = f"slot {entry.slot}: the worker knows generation {entry.generation}"
            self.counters.stale_generation_new_sessions += 1

    def _refused(self, sent: _Sent, reply: Refused) -> None:
        self._release(sent)
        if reply.status in (Status.NO_SESSION, Status.STALE_EPOCH):
            self.new_session_wanted = f"{reply.status.name}: {reply.detail}"

    def _release(self, sent: _Sent) -> None:
        """Nothing is known of the slots of this frame, unless they were reset after it."""
        for entry in sent.step.entries:
            slot = self._slots[entry.slot]
            if slot.reset_round <= sent.envelope.round:
                slot.held = False

    def _rewind(self, sent: _Sent) -> None:
        """The frame may or may not have been read: send its rows again."""
        for entry, held_before in zip(sent.step.entries, sent.held_before, strict=True):
            if held_before < 0:
                self._slots[entry.slot].held = False
            else:
                self._slots[entry.slot].rewind(held_before)

    def _close_round(self, reason: str = "", detail: str = "") -> RoundResult:
        wanted = sum(request.n_out > 0 for request in self._requests)
        if reason:
            for index in self._valid:
                if self._requests[index].n_out:
                    self._buffers.set_outcome(index, Outcome.ROUND_FAILED)
            self.counters.add(f"fallback_{reason}")
            self.counters.rounds_failed += 1
        result = self._buffers.result(reason, detail)
        got = int(np.count_nonzero(result.ok))
        if not reason:
            self.counters.rounds_append_only += wanted == 0
            self.counters.rounds_ok += 0 < wanted == got
            self.counters.rounds_some_failed += got < wanted
        self._requests = ()
        self._rows = self._rows[:0]
        return result
