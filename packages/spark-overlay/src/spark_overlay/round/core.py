"""One engine's rounds: what goes to the worker, what comes back, and what to do when it does not.

Rules
1. A round is `begin`, then `frames` where there is a session, then `finish` or `fail`; each exactly once.
2. `begin` keeps every valid row, also while there is no session: the ring is what makes a lost worker cheap.
3. Frames leave in the order given, all of them or the session is closed.  Only an awaited frame asks
   for drafts; the acknowledgements of the others are handed to `acknowledge` whenever they come.
4. A draft is returned only from a reply that the contract allows for the very frame of this round,
   entry by entry.
5. Whatever goes wrong, the round ends in zeros for the requests concerned, a counter with the reason,
   and slots that the next round brings in step again (`slots`, `session`).

Theory of operation.  The core never learns what the worker holds by asking: it knows what it sent in
order in this session, and treats every doubt as not held.  Any bytes from the worker end in a result;
ours are asserted.
"""

from collections.abc import Sequence

import numpy as np
from ofl.contract.dspark_v1 import (
    EntryFlag,
    Refused,
    RequestStatus,
    Shape,
    StepEntry,
    StepReply,
    StepReplyEntry,
    decode_reply,
)
from ofl.contract.records import Buffer, ContractError

from spark_overlay.round import reasons
from spark_overlay.round.budget import RowBudget
from spark_overlay.round.counters import Counters
from spark_overlay.round.framing import FrameBuilder
from spark_overlay.round.intake import Intake
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.outcome import ResultBuffers
from spark_overlay.round.plan import Plan, budget_rows, cut_frames, fit_budget, frame_bytes_needed, plan_slot
from spark_overlay.round.ring import Ring
from spark_overlay.round.session import Frame, SentFrame, SessionState
from spark_overlay.round.slots import Slot

_OUTCOMES = {
    RequestStatus.STALE_GENERATION: Outcome.STALE_GENERATION,
    RequestStatus.NEEDS_RESET: Outcome.NEEDS_RESET,
    RequestStatus.GAP: Outcome.GAP,
    RequestStatus.DRAFTER: Outcome.DRAFTER,
}


class RoundCore:
    """The sans-IO round.  One thread uses it.

    shape: as in HELLO; its max_frame_bytes is our own limit.
    ring_rows: rows kept per slot.  round_bytes_max: bytes of rows in one round.
    Raises ValueError, naming the value, where the limits leave no room for a round.
    """

    def __init__(self, shape: Shape, *, ring_rows: int, round_bytes_max: int) -> None:
        if ring_rows < max(shape.window, 1):
            raise ValueError(f"ring_rows {ring_rows} is below {max(shape.window, 1)}")
        if round_bytes_max < shape.row_bytes:
            raise ValueError(f"round_bytes_max {round_bytes_max} is below one row of {shape.row_bytes} bytes")
        self.shape = shape
        self.counters = Counters()
        self.last_bad_reply = ""
        self.last_worker_us = 0
        self.ring = Ring(shape.max_slots, ring_rows, shape.row_bytes)
        self._slots = [Slot() for _ in range(shape.max_slots)]
        self.session = SessionState(self._slots, self.counters)
        self._intake = Intake(shape, self._slots, self.ring, self.session, self.counters)
        self._builder = FrameBuilder(shape, self._slots, self.ring, self.counters)
        self._buffers = ResultBuffers(shape.max_slots, shape.block_length)
        self._valid: list[int] = []
        self._round_bytes_max = round_bytes_max
        self._max_frame_bytes = shape.max_frame_bytes
        self._budget = RowBudget(shape.block_length + 1)
        self._round_rows = 0
        self._check_frame_limit(shape.max_frame_bytes)

    # --- sessions ---

    @property
    def epoch(self) -> int:
        """Of the open session; 0 without one."""
        return self.session.epoch

    @property
    def last_epoch(self) -> int:
        """Of the last session that rounds used, also when it is over; 0 before the first."""
        return self.session.last_epoch

    @property
    def budget_rows(self) -> int:
        """Rows of a round, at most, as things are; 0 before the first session."""
        return self._budget.rows

    @property
    def new_session_wanted(self) -> str:
        """Why this session must be given up; empty where it need not."""
        return self.session.wanted

    def open_session(self, epoch: int, max_frame_bytes: int) -> None:
        """A session whose worker holds nothing of ours yet.  max_frame_bytes: the smaller of both limits."""
        self._check_frame_limit(max_frame_bytes)
        self.session.open(epoch)
        self._max_frame_bytes = max_frame_bytes
        self._budget.open(
            budget_rows(self._round_bytes_max, max_frame_bytes, self.shape.row_bytes, self.shape.max_slots)
        )

    def close_session(self) -> None:
        """The session is over, for whatever reason."""
        self.session.close()

    def be_careful(self) -> None:
        """The next rounds carry as few rows as they can, until rounds are answered in time again."""
        self._budget.fall_to_least()

    def context_start(self, slot: int) -> int:
        """Lowest position of the context that the worker was last told to use for a slot."""
        return self._slots[slot].origin

    # --- a round, outwards ---

    def begin(self, requests: Sequence[RoundRequest], rows: Buffer) -> None:
        """Keep this step's rows.  rows: row i at i * row_bytes; held by the core until `finish` or `fail`.

        Raises ValueError where the requests and rows cannot be of one step (a defect of the caller).
        """
        self.counters.rounds += 1
        self._intake.check_step(requests)
        self._builder.begin(requests, rows)
        self._buffers.clear(len(requests))
        self._valid.clear()
        for index, request in enumerate(requests):
            if self._intake.take(request, self._builder.rows):
                self._valid.append(index)
            elif request.n_out:
                self._buffers.set_outcome(index, Outcome.BAD_REQUEST)

    def frames(self) -> list[Frame]:
        """The messages of this round, in order; the last may be awaited.  Needs an open session."""
        assert self.session.epoch, "frames without a session"
        plans = [plan for index in self._valid if (plan := self._plan(index)) is not None]
        plans = fit_budget(plans, self._budget.begin(len(plans)))
        self._round_rows = sum(plan.n_rows for plan in plans)
        for plan in plans:
            if plan.pending:
                self._leave_out(plan.index, Outcome.RESYNC_PENDING, "req_resync_pending")
        self._count_plans(plans)
        cut = cut_frames(plans, self.shape.row_bytes, self._max_frame_bytes)
        frames = []
        for number, pieces in enumerate(cut, 1):
            sent = self._builder.build(pieces, self.session.epoch, last=number == len(cut))
            self.session.add(sent)
            frames.append(sent.frame)
        return frames

    def not_sent(self, frames: Sequence[Frame]) -> None:
        """These last frames of the round never left, and the connection lives: as if never built."""
        self.session.not_sent(frames)

    # --- a round, inwards ---

    def finish(self, body: Buffer | None) -> RoundResult:
        """The result, from the reply to the awaited frame; None where no frame was awaited."""
        sent = self.session.take_awaited()
        assert (sent is None) == (body is None), "a reply belongs to an awaited frame"
        if sent is None or body is None:
            return self._close_round()
        reply = self._read(sent, body)
        if isinstance(reply, ContractError):
            return self._close_round(reasons.BAD_REPLY, str(reply))
        if isinstance(reply, Refused):
            return self._close_round(reasons.frame_reason(reply.status), reply.said)
        self._budget.answered()
        self.last_worker_us = reply.queue_us + reply.draft_us
        for piece, asked, entry in zip(sent.pieces, sent.step.entries, reply.entries, strict=True):
            self._apply(piece.plan, asked, entry, sent.frame.round)
        return self._close_round()

    def fail(self, reason: str, detail: str = "") -> RoundResult:
        """The result of a round that got no reply, for one of `reasons`."""
        sent = self.session.take_awaited()
        if reason == reasons.TIMEOUT:
            # No other reason counts: a lost connection says nothing of its pace.
            self._budget.too_slow(self._round_rows)
        if sent is not None:
            if reason == reasons.TIMEOUT:
                self.session.rewind(sent)
            else:
                self.session.release(sent)
        return self._close_round(reason, detail)

    def abort(self, n_requests: int, detail: str) -> RoundResult:
        """After a defect of ours: trust no row, slot or session; a failed result of its own arrays."""
        self.session.close()
        for slot in self._slots:
            slot.forget()
        self._builder.end()
        self.counters.add(f"fallback_{reasons.INTERNAL_ERROR}")
        self.counters.rounds_failed += 1
        buffers = ResultBuffers(n_requests, self.shape.block_length)
        buffers.clear(n_requests)
        for index in range(n_requests):
            buffers.set_outcome(index, Outcome.ROUND_FAILED)
        return buffers.result(reasons.INTERNAL_ERROR, detail)

    def acknowledge(self, round_number: int, body: Buffer) -> None:
        """The reply to an append-only frame, whenever it comes; one that is not known is ignored."""
        sent = self.session.outstanding.pop(round_number, None)
        if sent is None:
            return
        reply = self._read(sent, body)
        if not isinstance(reply, StepReply):
            self.counters.append_refused += 1
            return
        if self.session.awaited is None and not self.session.outstanding:
            # The worker has caught up.  Where every window is too long for a round, nothing else would say so.
            self._budget.answered()
        for entry in reply.entries:
            if entry.status is not RequestStatus.OK:
                self.counters.append_refused += 1
                self.session.entry_failed(entry, round_number)

    def unacknowledged(self, round_number: int) -> None:
        """The reply to an append-only frame will never come: nothing is known of the slots that it was about."""
        sent = self.session.outstanding.pop(round_number, None)
        if sent is not None:
            self.session.release(sent)

    # --- inside ---

    def _check_frame_limit(self, max_frame_bytes: int) -> None:
        needed = frame_bytes_needed(self.shape.row_bytes, self.shape.max_slots, self.shape.block_length)
        if max_frame_bytes < needed:
            raise ValueError(f"max_frame_bytes {max_frame_bytes} is below the {needed} that a round needs")

    def _leave_out(self, index: int, outcome: Outcome, counter: str) -> None:
        self._buffers.set_outcome(index, outcome)
        self.counters.add(counter)

    def _plan(self, index: int) -> Plan | None:
        """The plan of a request; None where nothing is to be said of it."""
        request = self._builder.requests[index]
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

    def _read(self, sent: SentFrame, body: Buffer) -> StepReply | Refused | ContractError:
        """The reply to a frame; what is wrong with it is noted in the session."""
        self.counters.bytes_received += len(body)
        try:
            reply = decode_reply(body, sent.envelope, sent.step, self.shape)
        except ContractError as error:
            self.last_bad_reply = str(error)
            self.session.release(sent)
            return error
        if isinstance(reply, Refused):
            self.session.refused(sent, reply)
            return reply
        assert isinstance(reply, StepReply)
        return reply

    def _apply(self, plan: Plan, asked: StepEntry, entry: StepReplyEntry, round_number: int) -> None:
        """One entry of a good reply."""
        slot = self._slots[entry.slot]
        if entry.status is RequestStatus.OK:
            slot.held_start = max(entry.window_start, slot.origin)
            if entry.n_out and not self.session.confirmed(entry.slot):
                self._leave_out(plan.index, Outcome.UNCONFIRMED, "req_unconfirmed")
            elif entry.n_out:
                self._buffers.draft(plan.index, entry, bool(asked.flags & EntryFlag.PARTIAL_WINDOW))
                self.counters.draft_tokens += entry.n_out
            return
        if self._builder.requests[plan.index].n_out:
            self._buffers.set_outcome(plan.index, _OUTCOMES[entry.status])
        self.counters.add(f"req_status_{entry.status.name.lower()}")
        self.session.entry_failed(entry, round_number)

    def _close_round(self, reason: str = "", detail: str = "") -> RoundResult:
        requests = self._builder.requests
        wanted = sum(request.n_out > 0 for request in requests)
        if reason:
            for index in self._valid:
                if requests[index].n_out:
                    self._buffers.set_outcome(index, Outcome.ROUND_FAILED)
        result = self._buffers.result(reason, detail)
        got = int(np.count_nonzero(result.ok))
        if not wanted:
            self.counters.rounds_append_only += 1
        elif reason == reasons.PAUSED:
            self.counters.rounds_paused += 1
        elif reason:
            self.counters.add(f"fallback_{reason}")
            self.counters.rounds_failed += 1
        elif got == wanted:
            self.counters.rounds_ok += 1
        else:
            self.counters.rounds_some_failed += 1
        self._builder.end()
        return result
