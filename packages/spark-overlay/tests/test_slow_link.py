"""A link that carries a part of the window within the deadline, and not the whole: drafting comes back.

Time is simulated.  A row is 1,024 bytes and the link carries 40 of them within a deadline.
"""

import random
from dataclasses import replace
from typing import Any

import pytest
from drafter_rig import make_settings
from ofl.contract.dspark_v1 import RowDtype
from spark_overlay.interface import EngineFacts
from spark_overlay.round.budget import RowBudget
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.slots import Slot
from spark_overlay.rounds import RemoteDrafter, session_shape
from spark_overlay.simulation.bounded_link import BoundedLink, BoundedTransport, BoundedWire
from spark_overlay.simulation.worker import SimulatedWorker, drafts_of

FACTS = EngineFacts(
    vocabulary=1000,
    row_elements=512,
    row_dtype=RowDtype.BFLOAT16,
    tap_count=2,
    window=128,
    max_positions=20_000,
    block_length=4,
    max_slots=3,
)
MILLISECOND = 1_000_000
TIMEOUT_MS = 10
STEP_MS = 5
ROWS_PER_DEADLINE = 40
ROWS_PER_STEP = ROWS_PER_DEADLINE * STEP_MS // TIMEOUT_MS
BYTES_PER_US = ROWS_PER_DEADLINE * 1024 // (TIMEOUT_MS * 1000) + 1
COOLDOWN = 20
INFLOW = FACTS.block_length + 1


class Rig:
    """Requests that decode, each with K+1 rows in every step (the most there can be), over the link."""

    def __init__(
        self, window: int = FACTS.window, slots: int = 1, buffer_rows: int = 400, trip: int = 0
    ) -> None:
        settings = make_settings(TIMEOUT_MS=str(TIMEOUT_MS), COOLDOWN=str(COOLDOWN), TRIP=str(trip))
        self.facts = replace(FACTS, window=window)
        self.link = BoundedLink(BYTES_PER_US, buffer_rows * 1024)
        self.worker = SimulatedWorker(session_shape(settings, self.facts))
        wire = BoundedWire(self.link, self.worker.answer)
        self.drafter = RemoteDrafter(
            settings, self.facts, connect=wire.connect, clock_ns=lambda: self.link.now_ns
        )
        self.rows: list[list[bytes]] = [[] for _ in range(slots)]
        self._random = random.Random(1)

    def connect(self) -> BoundedTransport:
        assert self.drafter.link.attempt()
        return self.link.connections[-1]

    def fill(self, n_rows: int) -> None:
        """Give every request a window while there is no connection: the ring has it, the worker does not."""
        for _ in range(n_rows // INFLOW):
            assert self.step().reason == "not_ready"

    def step(self) -> RoundResult:
        """One step; drafts, where there are any, are checked to come from exactly the true window."""
        requests, buffer = [], bytearray()
        for slot, rows in enumerate(self.rows):
            fresh = [self._random.randbytes(self.facts.row_bytes) for _ in range(INFLOW)]
            first, offset = len(rows), len(buffer) // self.facts.row_bytes
            requests.append(RoundRequest(slot, f"r{slot}", first, INFLOW, offset, 5, 4))
            rows.extend(fresh)
            buffer += b"".join(fresh)
        result = self.drafter.round(requests, bytes(buffer))
        self.link.now_ns += STEP_MS * MILLISECOND
        for slot, rows in enumerate(self.rows):
            if result.ok[slot]:
                context = rows[self._context_start(slot) :]
                expected = drafts_of(context, 5, 4, self.facts.vocabulary)
                assert tuple(result.drafts[slot].tolist()) == expected
        return result

    def _context_start(self, slot: int) -> int:
        """Where the window begins; without one, what the ring could still give after a loss counts."""
        length, core = len(self.rows[slot]), self.drafter.core
        if self.facts.window:
            return max(length - self.facts.window, 0)
        start = core.context_start(slot)
        assert start <= max(length - core.ring.ring_rows, 0)
        return start

    def steps_until_admitted(self, at_most: int) -> int:
        """How many steps it takes until the breaker lets a round through."""
        for number in range(at_most + 1):
            if self.breaker()["state"] != "open":
                return number
            if self.drafter.link.session is None:
                self.connect()
            self.step()
        raise AssertionError(f"the breaker is open after {at_most} rounds: {self.breaker()}")

    def breaker(self) -> dict[str, object]:
        breaker = self.drafter.stats()["breaker"]
        assert isinstance(breaker, dict)
        return breaker

    def steps_until_all_draft(self, at_most: int) -> int:
        """How many steps it takes until every request drafts in two steps on end."""
        before = False
        for number in range(1, at_most + 1):
            if self.drafter.link.session is None:
                self.connect()
            now = bool(self.step().ok.all())
            if now and before:
                return number
            before = now
        raise AssertionError(f"not every request drafts after {at_most} rounds: {self.counters()}")

    def steps_needed(self) -> int:
        """Steps in which the link carries what is queued, what the worker lacks and what comes in meanwhile.

        A round that is not waited for is as long as a step.  Some more are for the budget to settle.
        """
        queued = self.link.connections[-1].queued_ns * ROWS_PER_DEADLINE // (TIMEOUT_MS * MILLISECOND)
        slots = self.drafter.core._slots[: len(self.rows)]
        window = self.facts.window
        lacking = [slot.end - slot.held_end if slot.held else slot.end for slot in slots]
        behind = queued + sum(min(rows, window) if window else rows for rows in lacking)
        return behind // (ROWS_PER_STEP - len(slots) * INFLOW) + 12

    def counters(self) -> dict[str, int]:
        counters = self.drafter.stats()["counters"]
        assert isinstance(counters, dict)
        return {name: count for name, count in counters.items() if count}


@pytest.mark.parametrize("window", [128, 0])
@pytest.mark.parametrize("stall_ms", [25, 60, 200, 1000])
def test_after_a_stall_drafting_resumes_within_a_bounded_number_of_rounds(window: int, stall_ms: int) -> None:
    rig = Rig(window)
    rig.connect()
    rig.steps_until_all_draft(3)
    rig.link.stalled_until_ns = rig.link.now_ns + stall_ms * MILLISECOND
    while rig.link.now_ns < rig.link.stalled_until_ns:
        assert not rig.step().ok.any()
    rig.steps_until_all_draft(rig.steps_needed())
    assert len(rig.link.connections) == 1, "the connection is kept"


@pytest.mark.parametrize("window", [128, 0])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_window_too_long_for_the_deadline_gets_across_after_a_reconnect(window: int, slots: int) -> None:
    rig = Rig(window, slots)
    rig.fill(2 * FACTS.window)
    rig.connect()
    rig.steps_until_all_draft(rig.steps_needed())
    assert rig.counters()["fallback_timeout"] > 0, "the whole window was tried"
    assert rig.counters()["req_resync_pending"] > 0
    rig.drafter.link.lost(rig.drafter.link.session, "as the test asks")  # type: ignore[arg-type]
    assert rig.step().reason == "not_ready"
    rig.connect()
    rig.steps_until_all_draft(rig.steps_needed())


@pytest.mark.parametrize("window", [128, 0])
@pytest.mark.parametrize("stall_ms", [25, 60, 200, 1000])
def test_after_a_stall_the_breaker_costs_one_cooldown_and_no_more(window: int, stall_ms: int) -> None:
    rig = Rig(window, trip=3)
    rig.connect()
    rig.steps_until_all_draft(3)
    rig.link.stalled_until_ns = rig.link.now_ns + stall_ms * MILLISECOND
    while rig.link.now_ns < rig.link.stalled_until_ns:
        assert not rig.step().ok.any()
    rig.steps_until_admitted(COOLDOWN)
    rig.steps_until_all_draft(rig.steps_needed())
    assert rig.breaker()["state"] == "closed"


@pytest.mark.parametrize("window", [128, 0])
def test_a_probe_does_not_fail_for_its_size(window: int) -> None:
    """Three windows of 128 rows need four halvings, 384 to 24, and two failures open the breaker."""
    rig = Rig(window, slots=3, trip=2)
    rig.fill(2 * FACTS.window)
    while rig.breaker()["state"] == "closed":
        if rig.drafter.link.session is None:
            rig.connect()
        assert not rig.step().ok.any()
    rig.steps_until_admitted(COOLDOWN)
    rig.steps_until_all_draft(rig.steps_needed())
    assert rig.counters()["breaker_trips"] == rig.counters()["breaker_recoveries"] == 1
    assert rig.counters()["fallback_cooldown"] == COOLDOWN


def test_a_buffer_that_is_full_does_not_keep_a_window_from_getting_across() -> None:
    rig = Rig(buffer_rows=100)
    rig.fill(FACTS.window)
    rig.connect()
    rig.link.stalled_until_ns = rig.link.now_ns + 100 * MILLISECOND
    rig.steps_until_all_draft(120)


def test_the_budget_falls_to_a_part_of_a_slow_round_and_grows_back() -> None:
    rig = Rig()
    rig.connect()
    rig.steps_until_all_draft(3)
    whole = rig.drafter.stats()["budget_rows"]
    rig.link.stalled_until_ns = rig.link.now_ns + 25 * MILLISECOND
    assert rig.step().reason == "timeout"
    rig.step()
    assert rig.drafter.stats()["budget_rows"] == 2 * INFLOW, "more than one request brings"
    for _ in range(80):
        rig.step()
    assert rig.drafter.stats()["budget_rows"] == whole


def test_a_lost_connection_leaves_the_budget_alone() -> None:
    rig = Rig()
    rig.connect()
    rig.steps_until_all_draft(3)
    whole = rig.drafter.stats()["budget_rows"]
    rig.link.connections[-1].kill()
    assert rig.step().reason == "transport_error"
    rig.connect()
    assert rig.step().outcomes.tolist() != [Outcome.RESYNC_PENDING]
    assert rig.drafter.stats()["budget_rows"] == whole


def whole_limit(self: RowBudget, requests: int) -> int:
    """Defect: rounds as long as the session allows, whatever happened."""
    return self._limit


def bring_no_more_than_comes_in(self: RowBudget, requests: int) -> int:
    """Defect: the least budget is what the requests bring, so what is missing stays missing."""
    self._least = requests * self._inflow
    return self.rows


def double(self: RowBudget) -> None:
    """Defect: every other round is too slow and takes back what the one before it brought."""
    self._rows = min(2 * self.rows, self._limit)


def probe_in_full(self: RowBudget) -> None:
    """Defect: a probe carries what the last attempt carried, and fails of it."""


def raise_never(self: RowBudget) -> None:
    """Defect: what was once slow stays slow."""


def keep_origin(self: Slot, held_end: int) -> None:
    """Defect: rows that may have arrived need a reset, and so a whole window, to be sent again."""
    self.held_end = held_end
    self.held = self.held_start <= self.origin


DEFECTS = [
    (RowBudget, "begin", whole_limit),
    (RowBudget, "begin", bring_no_more_than_comes_in),
    (RowBudget, "answered", double),
    (RowBudget, "answered", raise_never),
    (RowBudget, "fall_to_least", probe_in_full),
    (Slot, "rewind", keep_origin),
]


def run_all() -> None:
    for window in (128, 0):
        for stall_ms in (25, 200, 1000):
            test_after_a_stall_drafting_resumes_within_a_bounded_number_of_rounds(window, stall_ms)
        test_a_probe_does_not_fail_for_its_size(window)
        for slots in (1, 2, 3):
            test_a_window_too_long_for_the_deadline_gets_across_after_a_reconnect(window, slots)
    test_the_budget_falls_to_a_part_of_a_slow_round_and_grows_back()


@pytest.mark.parametrize(("owner", "name", "defect"), DEFECTS)
def test_a_planted_defect_is_caught(
    owner: type, name: str, defect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, defect)
    with pytest.raises(AssertionError):
        run_all()
