"""Thousands of seeded rounds with every fault: drafts come from exactly the true rows, or not at all."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ofl.contract.dspark_v1 import RowDtype, RowForm, Shape, Status
from spark_overlay.round import core as core_module
from spark_overlay.round.core import RoundCore
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.ring import Ring, ring_rows_needed
from spark_overlay.round.session import SessionState
from spark_overlay.round.slots import Slot
from spark_overlay.simulation.engine import SimulatedEngine
from spark_overlay.simulation.worker import SimulatedWorker

WINDOWS = (0, 1, 5, 16)


def make_shape(window: int) -> Shape:
    return Shape(
        identity=bytes(range(32)),
        markov_identity=bytes(range(1, 33)),
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


def make_engine(window: int, seed: int, *, round_bytes_max: int = 1 << 20, **options: Any) -> SimulatedEngine:
    """1,024-byte rows and 4,096-byte frames: three rows a frame, so that most rounds are split."""
    shape = make_shape(window)
    ring_rows = ring_rows_needed(window, shape.block_length, 1) if window else 48
    core = RoundCore(shape, ring_rows=ring_rows, round_bytes_max=round_bytes_max)
    return SimulatedEngine(core, SimulatedWorker(shape), seed, **options)


def run(engine: SimulatedEngine, rounds: int) -> None:
    for _ in range(rounds):
        engine.step()
    assert engine.drafted > rounds // 2, f"seed {engine.seed} drafted only {engine.drafted} times"


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(3))
def test_drafts_come_from_the_true_rows_through_every_fault(window: int, seed: int) -> None:
    run(make_engine(window, seed), 150)


@pytest.mark.parametrize("window", WINDOWS)
def test_without_faults_every_request_drafts_in_every_round(window: int) -> None:
    engine = make_engine(window, 7, fault_rate=0.0)
    while engine.step().reason:
        pass
    before = engine.core.counters.rounds_failed
    run(engine, 300)
    counters = engine.core.counters
    assert counters.rounds_failed == before
    assert counters.rounds_some_failed == 0
    assert counters.rounds_ok > 150


@pytest.mark.parametrize("window", WINDOWS)
def test_an_engine_that_cannot_tell_additions_drafts_right_all_the_same(window: int) -> None:
    run(make_engine(window, 11, announce_adds=False), 200)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_round_over_its_budget_goes_over_several_rounds_and_stays_right(window: int) -> None:
    engine = make_engine(window, 3, round_bytes_max=12 * 1024)
    run(engine, 200)
    if window != 1:  # five slots of one row each fit
        assert engine.core.counters.req_resync_pending > 0


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), window=st.sampled_from(WINDOWS), faults=st.floats(0.0, 0.6))
def test_any_seed_holds(seed: int, window: int, faults: float) -> None:
    engine = make_engine(window, seed, fault_rate=faults)
    for _ in range(60):
        engine.step()


def test_every_fault_was_met() -> None:
    """The canary of the simulation: a run in which some path never ran would prove nothing about it."""
    seen: dict[str, int] = {}
    for window in WINDOWS:
        engine = make_engine(window, 5, fault_rate=0.4)
        run(engine, 300)
        for name, count in engine.core.counters.as_dict().items():
            seen[name] = seen.get(name, 0) + count
    expected_silent = {
        # The simulated wire keeps to version, shape and policy, and the engine describes itself well.
        "fallback_disabled",
        "fallback_reconnected",
        "fallback_internal_error",
        "fallback_frame_bad_message",
        "fallback_frame_version",
        "fallback_frame_mismatch",
        "fallback_frame_stale_epoch",
        "fallback_frame_policy",
        "req_no_context",
        "req_resync_pending",
        "req_bad",
        # The driver counts these, and here the engine drives the core itself; test_rounds has them.
        "fallback_cooldown",
        "local_fallback_rounds",
        "local_fallback_requests",
        "breaker_trips",
        "breaker_recoveries",
        "acceptance_alarms",
    }
    assert {name for name, count in seen.items() if count == 0} <= expected_silent


def keep_rejected_rows(self: Slot, first_position: int, n_rows: int, ring_rows: int) -> None:
    """Defect: the worker is taken to hold rows that were taken back."""
    self.end = first_position + n_rows
    self.start = max(self.start, self.end - ring_rows)


def ignore_new_requests(self: Slot, request_id: str, first_position: int, added: bool) -> bool:
    """Defect: another request in the slot continues the old one's rows."""
    return self.request_id is not None and self.start <= first_position <= self.end


def lose_reset(self: Slot, first: int, end: int, reset: bool, window: int, round_number: int) -> None:
    """Defect: a slot counts as held whatever was sent."""
    self.held = True
    self.held_start = self.origin = min(self.origin, first)
    self.held_end = end


def store_one_off(self: Ring, slot: int, first_position: int, rows: Any) -> None:
    """Defect: the ring keeps rows one place too far."""
    whole_store(self, slot, first_position + 1, rows)


def forget_nothing(self: SessionState) -> None:
    """Defect: a new session starts with what the old worker held."""
    self.epoch = 0
    self.wanted = ""


def confirm_all(self: SessionState, number: int) -> bool:
    """Defect: drafts are used although an append before them was refused."""
    return True


whole_store = Ring.store
DEFECTS = [
    (Slot, "extend", keep_rejected_rows),
    (Slot, "continues", ignore_new_requests),
    (Slot, "sent", lose_reset),
    (Ring, "store", store_one_off),
    (SessionState, "close", forget_nothing),
    (SessionState, "confirmed", confirm_all),
]


def run_windows() -> None:
    for window in (0, 5):
        for seed in range(5):
            run(make_engine(window, seed, announce_adds=False), 150)
    # Rows taken back, refused in a message of their own, and drafted over in the same round: rare but for faults.
    for window, seed in ((0, 13), (5, 13), (0, 12)):
        run(make_engine(window, seed, announce_adds=False, fault_rate=0.4), 150)


def test_the_planted_defects_are_all_that_is_wrong_with_these_runs() -> None:
    run_windows()


def draft_over_a_refused_append(window: int) -> RoundResult:
    """Rows that replace others are refused in the first message; the worker drafts from the old ones in the last."""
    shape = make_shape(window)
    core, worker = RoundCore(shape, ring_rows=48, round_bytes_max=1 << 20), SimulatedWorker(shape)
    worker.open_session(1)
    core.open_session(1, shape.max_frame_bytes)

    def replies(first: int, rows: list[bytes], refused: int) -> RoundResult:
        core.begin([RoundRequest(0, "a", first, len(rows), 0, 5, 4)], b"".join(rows))
        frames = core.frames()
        for number, frame in enumerate(frames):
            worker.refuse_with = Status.BUSY if number < refused else None
            body = worker.answer(b"".join(frame.parts))
            if frame is not frames[-1]:
                core.acknowledge(frame.round, body)
        return core.finish(body)

    assert replies(0, [bytes([number]) * shape.row_bytes for number in range(8)], refused=0).ok.all()
    return replies(4, [bytes([100 + number]) * shape.row_bytes for number in range(5)], refused=1)


@pytest.mark.parametrize("window", [0, 5])
def test_drafts_over_a_refused_append_are_not_used(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = draft_over_a_refused_append(window)
    assert result.outcomes.tolist() == [Outcome.UNCONFIRMED]
    assert not result.drafts.any()
    monkeypatch.setattr(SessionState, "confirmed", confirm_all)
    assert draft_over_a_refused_append(window).ok.all(), "the worker did draft, from rows that are not true"


@pytest.mark.parametrize(("owner", "name", "defect"), DEFECTS)
def test_a_planted_defect_is_caught(
    owner: type, name: str, defect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, defect)
    with pytest.raises((AssertionError, core_module.ContractError)):
        run_windows()
