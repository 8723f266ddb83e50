"""The round core against the worker's real session core: the two read the contract alike."""

from collections.abc import Sequence

import pytest
from ofl.contract.dspark_v1 import (
    Envelope,
    Hello,
    HelloReply,
    Kind,
    Op,
    Policy,
    Refused,
    RowDtype,
    RowForm,
    Shape,
    Status,
    decode_reply,
    encode_reply,
    encode_request,
    peek,
)
from ofl.contract.records import Buffer
from spark_overlay.round.core import RoundCore
from spark_overlay.round.ring import ring_rows_needed
from spark_overlay.simulation.engine import SimulatedEngine
from spark_overlay.simulation.worker import drafts_of
from x86_worker.drafters.base import Context, Draft, DrafterFacts, DraftFailure, DraftWish
from x86_worker.session import DrafterService, Limits

WINDOWS = (0, 5, 16)
ENGINE_ID = b"the engine's id."


class RowsContext:
    """Keeps rows as they came."""

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        self.start = 0
        self.rows: list[bytes] = []

    @property
    def end(self) -> int:
        return self.start + len(self.rows)

    def append(self, first_position: int, rows: memoryview, n_rows: int) -> None:
        """See `base.Context`."""
        if not self.rows:
            self.start = first_position
        del self.rows[first_position - self.start :]
        size = self._row_bytes
        self.rows += [bytes(rows[at * size : (at + 1) * size]) for at in range(n_rows)]

    def drop_before(self, position: int) -> None:
        """See `base.Context`."""
        del self.rows[: position - self.start]
        self.start = position

    def clear(self) -> None:
        """See `base.Context`."""
        self.rows.clear()


class DigestDrafter:
    """Drafts as the simulated worker does, so that the simulation can tell right from wrong."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.failing = False
        self.facts = DrafterFacts(
            identity=shape.identity,
            markov_identity=shape.markov_identity,
            target_binding=shape.target_binding,
            vocabulary=shape.vocabulary,
            row_elements={shape.row_form: shape.row_elements},
            row_dtypes=frozenset({shape.row_dtype}),
            window=shape.window,
            max_positions=shape.max_positions,
            block_length=shape.block_length,
            tap_count=shape.tap_count,
            context_row_bytes=shape.row_bytes,
            has_confidence=True,
            fake=False,
        )

    def new_context(self, row_form: RowForm, row_dtype: RowDtype) -> Context:
        """See `base.Drafter`."""
        return RowsContext(self._shape.row_bytes)

    def draft(self, wishes: Sequence[DraftWish]) -> list[Draft | DraftFailure]:
        """See `base.Drafter`."""
        return [self._draft(wish) for wish in wishes]

    def describe(self) -> dict[str, object]:
        """See `base.Drafter`."""
        return {"kind": "digest"}

    def _draft(self, wish: DraftWish) -> Draft | DraftFailure:
        if self.failing:
            return DraftFailure("as the simulation asks")
        assert isinstance(wish.context, RowsContext)
        window = self._shape.window
        start = max(wish.window_start, wish.anchor_position - window if window else 0)
        rows = wish.context.rows[start - wish.context.start :]
        drafts = drafts_of(rows, wish.anchor, wish.n_out, self._shape.vocabulary)
        return Draft(drafts, (0.5,) * len(drafts), (1.0,) * len(drafts))


class RealWorker:
    """The worker's session core as `simulation.worker.WorkerTwin`."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._connection = 0
        self._now_ns = 0
        self.refuse_with: Status | None = None
        self.restart()

    def restart(self) -> None:
        """See `WorkerTwin`."""
        self._drafter = DigestDrafter(self._shape)
        limits = Limits(max_slots=self._shape.max_slots, max_frame_bytes=self._shape.max_frame_bytes)
        self._service = DrafterService(
            self._drafter, worker_name="real", boot_nonce=1, now_ns=self._now_ns, limits=limits
        )
        self._connected = False

    def open_session(self, epoch: int) -> None:
        """See `WorkerTwin`."""
        if self._connected:
            self._service.disconnected(self._connection, "the simulation reconnects")
        self._connection += 1
        self._service.connected(self._connection)
        self._connected = True
        hello = Hello(ENGINE_ID, Policy.CAPACITY, self._shape)
        envelope = Envelope(Op.HELLO, epoch, 0)
        body = self.answer(b"".join(encode_request(envelope, hello)))
        assert isinstance(decode_reply(body, envelope, hello), HelloReply)

    def forget_session(self) -> None:
        """See `WorkerTwin`."""
        if self._connected:
            self._service.disconnected(self._connection, "the simulation forgets")
            self._connection += 1
            self._service.connected(self._connection)

    def held_slots(self) -> list[int]:
        """See `WorkerTwin`."""
        return [
            number
            for session in self._service.sessions
            for number, slot in session.slots.items()
            if slot.rows
        ]

    def forget_slot(self, slot: int) -> None:
        """See `WorkerTwin`."""
        del self._service.sessions[0].slots[slot]

    def newer_generation(self, slot: int) -> None:
        """See `WorkerTwin`."""
        self._service.sessions[0].slots[slot].generation += 1000

    def fail_once(self, slot: int) -> None:
        """See `WorkerTwin`."""
        self._drafter.failing = True

    def recover(self) -> None:
        """See `WorkerTwin`."""
        self._drafter.failing = False
        self.refuse_with = None

    def answer(self, body: Buffer) -> bytes:
        """See `WorkerTwin`."""
        self._now_ns += 1000
        head = peek(body, Kind.REQUEST)
        if self.refuse_with is not None and head.op is Op.STEP:
            envelope = Envelope(Op.STEP, head.epoch, head.round, self.refuse_with)
            return b"".join(encode_reply(envelope, Refused(Op.STEP, self.refuse_with, "step", "asked"), None))
        now = self._now_ns
        answer = self._service.receive(self._connection, body, received_ns=now, now_ns=now)
        return b"".join(self._service.encode(answer, finished_ns=now))


def make_engine(window: int, seed: int, fault_rate: float) -> SimulatedEngine:
    shape = Shape(
        identity=bytes(range(32)),
        markov_identity=bytes(32),
        target_binding=bytes(32),
        vocabulary=50_000,
        row_elements=256,
        window=window,
        max_positions=400,
        max_frame_bytes=4096,
        block_length=4,
        max_slots=5,
        tap_count=2,
        row_form=RowForm.RAW,
        row_dtype=RowDtype.FLOAT32,
    )
    ring_rows = ring_rows_needed(window, shape.block_length, 1) if window else 48
    core = RoundCore(shape, ring_rows=ring_rows, round_bytes_max=1 << 20)
    return SimulatedEngine(core, RealWorker(shape), seed, fault_rate)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(2))
def test_drafts_come_from_the_true_rows_through_every_fault(window: int, seed: int) -> None:
    engine = make_engine(window, seed, fault_rate=0.2)
    for _ in range(200):
        engine.step()
    assert engine.drafted > 120


@pytest.mark.parametrize("window", WINDOWS)
def test_without_faults_the_worker_never_finds_anything_wrong(window: int) -> None:
    engine = make_engine(window, 9, fault_rate=0.0)
    for _ in range(200):
        engine.step()
    counters = engine.core.counters
    assert counters.rounds_ok > 80
    assert counters.append_refused == counters.rounds_some_failed == 0
