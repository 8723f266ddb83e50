"""A scheduler in miniature and a faulty wire, driving a `RoundCore` against a worker's twin from one seed.

Prefills in chunks (after prefix-cache hits too), decodes with accepted and rejected drafts, takes rows back,
preempts and replays, reuses slots; the wire times out, breaks, restarts the worker and delivers
acknowledgements late.  After every round it checks what must hold; a failure names the seed and the round.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ofl.contract.dspark_v1 import Status
from ofl.contract.dspark_v1.rules import first_needed

from spark_overlay.round import reasons
from spark_overlay.round.core import RoundCore
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.session import Frame
from spark_overlay.simulation.worker import WorkerTwin, drafts_of

QUIET_ROUNDS = 3
"""Rounds without a fault after which every request must draft again: one may still fail, one may resync."""
ACK_DELAY_MAX = 4


@dataclass
class SimulatedRequest:
    """A request and its true rows.

    done: rows the engine has computed.  known_start: the lowest it gave since the request was (re-)added.
    rounds: since then.  peak: the most rows it has had since then.
    """

    name: str
    slot: int
    rows: list[bytes]
    prompt_length: int
    done: int
    known_start: int
    rounds: int = 0
    peak: int = 0


@dataclass
class SimulatedEngine:
    """One run.  step() is one engine step; it raises AssertionError where something does not hold.

    fault_rate: share of rounds with a fault.  announce_adds: whether `added` is set, as by an engine
    that knows.
    """

    core: RoundCore
    worker: WorkerTwin
    seed: int
    fault_rate: float = 0.2
    announce_adds: bool = True
    requests: list[SimulatedRequest] = field(default_factory=list)
    drafted: int = 0
    rounds: int = 0
    quiet: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._names = 0
        self._epoch = 0
        self._connected = False
        self._preempted: list[SimulatedRequest] = []
        self._disturbed: set[int] = set()
        self._late: list[tuple[int, int, bytes]] = []
        self._previous_reply = b""
        self._sent_faults = {
            "timeout_applied": self._timeout_applied,
            "timeout_dropped": self._timeout_dropped,
            "lost": self._lost,
            "worker_restart": self._worker_restart,
            "append_refused": self._append_refused,
            "bad_reply": self._bad_reply,
            "stale_reply": self._stale_reply,
        }

    def step(self) -> RoundResult:
        """One round, checked."""
        self.rounds += 1
        self._shuffle_requests()
        batch = [self._advance(request) for request in self.requests if self._random.random() < 0.9]
        offsets, rows = [], bytearray()
        for request, first, count in batch:
            # Rows that the engine rejected stand before and between the valid ones and must never be read.
            rows += self._random.randbytes(self._row_bytes * self._random.randrange(3))
            offsets.append(len(rows) // self._row_bytes)
            rows += b"".join(request.rows[first : first + count])
        wanted = [self._describe(*entry, offset) for entry, offset in zip(batch, offsets, strict=True)]
        self._deliver_late()
        result = self._run(wanted, rows)
        self._check(batch, wanted, result)
        return result

    # --- the scheduler ---

    @property
    def _row_bytes(self) -> int:
        return self.core.shape.row_bytes

    def _shuffle_requests(self) -> None:
        for request in list(self.requests):
            draw = self._random.random()
            if draw < 0.03 or len(request.rows) > self.core.shape.max_positions - 60:
                self.requests.remove(request)
            elif draw < 0.06 and request.rows:
                self.requests.remove(request)
                self._preempted.append(request)
        free = set(range(self.core.shape.max_slots)) - {request.slot for request in self.requests}
        if free and self._random.random() < 0.6:
            self._add(self._random.choice(sorted(free)))

    def _add(self, slot: int) -> None:
        if self._preempted and self._random.random() < 0.5:
            request = self._preempted.pop()
            request.slot = slot
            request.prompt_length = len(request.rows)
        else:
            self._names += 1
            request = SimulatedRequest(f"r{self._names}", slot, [], self._random.randrange(1, 40), 0, 0)
        hit = self._random.randrange(request.prompt_length) if self._random.random() < 0.3 else 0
        request.done = request.known_start = hit
        request.rounds = request.peak = 0
        self._grow(request, hit)
        self.requests.append(request)

    def _advance(self, request: SimulatedRequest) -> tuple[SimulatedRequest, int, int]:
        """The request's rows of this step: first position and count."""
        left = request.prompt_length - request.done
        if left > 0:
            count = min(left, self._random.randrange(1, 24))
        else:
            self._take_back(request)
            count = self._random.randrange(1, self.core.shape.block_length + 2)
        first = request.done
        self._grow(request, first + count)
        request.done += count
        request.peak = max(request.peak, request.done)
        request.rounds += 1
        return request, first, count

    def _take_back(self, request: SimulatedRequest) -> None:
        """Sometimes the last rows are computed anew and differ (a rollback within the ring)."""
        back = self._random.randrange(1, 4)
        if self._random.random() < 0.1 and request.done - back >= request.known_start and request.rounds > 1:
            request.done -= back
            del request.rows[request.done :]

    def _grow(self, request: SimulatedRequest, length: int) -> None:
        while len(request.rows) < length:
            request.rows.append(self._random.randbytes(self._row_bytes))

    def _describe(self, request: SimulatedRequest, first: int, count: int, offset: int) -> RoundRequest:
        shape = self.core.shape
        drafts = first + count >= request.prompt_length
        added = self.announce_adds and request.rounds == 1
        return RoundRequest(
            slot=request.slot,
            request_id=request.name,
            first_position=first,
            n_rows=count,
            row_offset=offset,
            anchor=self._random.randrange(shape.vocabulary),
            n_out=self._random.choice((shape.block_length, shape.block_length, 1)) if drafts else 0,
            added=added,
        )

    # --- the wire ---

    def _run(self, wanted: list[RoundRequest], rows: bytearray) -> RoundResult:
        self.core.begin(wanted, rows)
        if not self._connected or self.core.new_session_wanted:
            self._connected = self._random.random() < 0.7
            if not self._connected:
                self.core.close_session()
                return self._faulted(self.core.fail(reasons.NOT_READY))
            self._epoch += 1
            self._late.clear()
            self._disturbed.clear()
            # The core knows that nothing is held now, so it must be right at once.
            self.quiet = QUIET_ROUNDS
            self.worker.open_session(self._epoch)
            self.core.open_session(self._epoch, self.core.shape.max_frame_bytes)
        faulty = self._random.random() < self.fault_rate
        if faulty:
            self._disturb_worker([request.slot for request in wanted])
        frames = self.core.frames()
        if faulty and self._random.random() < 0.6:
            name = self._random.choice(sorted(self._sent_faults))
            return self._faulted(self._sent_faults[name](frames))
        result = self._good(frames)
        self.worker.recover()
        self.quiet = 0 if faulty else self.quiet + 1
        return result

    def _faulted(self, result: RoundResult) -> RoundResult:
        self.quiet = 0
        self.worker.recover()
        return result

    def _disturb_worker(self, slots: list[int]) -> None:
        """Something at the worker that it will answer for in this round."""
        held = sorted(set(slots).intersection(self.worker.held_slots()))
        draw = self._random.randrange(6)
        if draw == 0:
            self.worker.refuse_with = self._random.choice((Status.BUSY, Status.DRAINING, Status.DRAFTER))
        elif draw == 1:
            self.worker.forget_session()
        elif held and draw > 2:
            slot = self._random.choice(held)
            self._disturbed.add(slot)
            if draw == 3:
                self.worker.fail_once(slot)
            elif draw == 4:
                self.worker.forget_slot(slot)
            else:
                self.worker.newer_generation(slot)

    def _answer_appends(self, frames: list[Frame]) -> None:
        """The worker reads every frame that nobody waits for; its acknowledgements come some rounds later."""
        for frame in frames:
            if not frame.awaited:
                due = self.rounds + self._random.randrange(ACK_DELAY_MAX)
                self._late.append((due, frame.round, self._answer(frame)))

    def _deliver_late(self, at_once: bool = False) -> None:
        """Acknowledgements that are due; at once: all, because replies come in the order of their frames."""
        for late in [late for late in self._late if at_once or late[0] <= self.rounds]:
            self._late.remove(late)
            self.core.acknowledge(late[1], late[2])

    def _answer(self, frame: Frame) -> bytes:
        return self.worker.answer(b"".join(frame.parts))

    def _awaited(self, frames: list[Frame]) -> Frame | None:
        awaited = [frame for frame in frames if frame.awaited]
        assert awaited == frames[-1:] or not awaited, "only the last frame may be awaited"
        return awaited[0] if awaited else None

    def _good(self, frames: list[Frame]) -> RoundResult:
        self._answer_appends(frames)
        frame = self._awaited(frames)
        if frame is None:
            return self.core.finish(None)
        self._previous_reply = self._answer(frame)
        self._deliver_late(at_once=True)
        return self.core.finish(self._previous_reply)

    def _timeout_applied(self, frames: list[Frame]) -> RoundResult:
        self._answer_appends(frames)
        if (frame := self._awaited(frames)) is not None:
            self._answer(frame)
        return self.core.fail(reasons.TIMEOUT)

    def _timeout_dropped(self, frames: list[Frame]) -> RoundResult:
        self._answer_appends(frames)
        return self.core.fail(reasons.TIMEOUT)

    def _lost(self, frames: list[Frame]) -> RoundResult:
        self._answer_appends(frames[: self._random.randrange(len(frames) + 1)])
        result = self.core.fail(reasons.TRANSPORT_ERROR)
        self.core.close_session()
        self._connected = False
        return result

    def _worker_restart(self, frames: list[Frame]) -> RoundResult:
        self.worker.restart()
        return self._lost([])

    def _append_refused(self, frames: list[Frame]) -> RoundResult:
        """The worker refuses the first append-only frame and takes what follows it."""
        if frames and not frames[0].awaited:
            self.worker.refuse_with = Status.BUSY
            self._answer_appends(frames[:1])
            self.worker.refuse_with = None
            frames = frames[1:]
        return self._good(frames)

    def _bad_reply(self, frames: list[Frame]) -> RoundResult:
        return self._reply_with(frames, lambda body: body[: self._random.randrange(len(body))])

    def _stale_reply(self, frames: list[Frame]) -> RoundResult:
        return self._reply_with(frames, lambda body: self._previous_reply)

    def _reply_with(self, frames: list[Frame], change: Callable[[bytes], bytes]) -> RoundResult:
        self._answer_appends(frames)
        frame = self._awaited(frames)
        if frame is None:
            return self.core.finish(None)
        reply = change(self._answer(frame))
        self._deliver_late(at_once=True)
        return self.core.finish(reply)

    # --- what must hold ---

    def _check(
        self,
        batch: list[tuple[SimulatedRequest, int, int]],
        wanted: list[RoundRequest],
        result: RoundResult,
    ) -> None:
        for index, ((request, first, count), asked) in enumerate(zip(batch, wanted, strict=True)):
            where = f"seed {self.seed}, round {self.rounds}, request {request.name}"
            outcome = Outcome(int(result.outcomes[index]))
            drafts = result.drafts[index].tolist()
            assert (outcome is Outcome.OK) == bool(result.ok[index]), where
            if outcome is not Outcome.OK:
                assert not any(drafts), f"{where}: drafts with {outcome.name}"
                assert outcome is Outcome.NO_DRAFT or asked.n_out, where
                if asked.n_out and outcome is not Outcome.RESYNC_PENDING:
                    excused = self.quiet <= QUIET_ROUNDS or request.slot in self._disturbed
                    assert excused, f"{where}: {outcome.name} {result.reason} {result.detail}"
                continue
            assert asked.n_out, where
            self.drafted += 1
            self._disturbed.discard(request.slot)
            expected = drafts_of(
                request.rows[self._context_start(request, first + count, where) : first + count],
                asked.anchor,
                asked.n_out,
                self.core.shape.vocabulary,
            )
            assert tuple(drafts[: asked.n_out]) == expected, f"{where}: drafts from other rows"
            assert not any(drafts[asked.n_out :]), where

    def _context_start(self, request: SimulatedRequest, anchor_position: int, where: str) -> int:
        """Where the context begins; checked to be as far back as the ring could reach."""
        window = self.core.shape.window
        needed = first_needed(window, anchor_position)
        start = max(self.core.context_start(request.slot), needed)
        reach = 0 if window else request.peak - self.core.ring.ring_rows
        assert start <= max(request.known_start, needed, reach), f"{where}: the context starts at {start}"
        return start
