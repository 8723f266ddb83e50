"""Orders as rounds meet them: no drafts and no word to the worker while paused, exact drafts afterwards."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drafter_rig import FACTS, make_settings
from ofl.contract.dspark_v1 import Kind, Op, peek
from orders import Orders
from spark_overlay.control.ordering import order, wait_for
from spark_overlay.link import Link
from spark_overlay.metrics import stats_families
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.rounds import RemoteDrafter, session_shape
from spark_overlay.simulation.transport import SimulatedWire
from spark_overlay.simulation.worker import SimulatedWorker, drafts_of

DEADLINE_S = 20.0


class Rig:
    """A drafter without threads: the test looks at the file and takes the link's turns.

    rows: every context row given so far, of one request.
    """

    def __init__(self, **changes: str) -> None:
        self.settings = make_settings(**changes)
        self.orders, self.now_ns = Orders(), 0
        self.worker = SimulatedWorker(session_shape(self.settings, FACTS))
        self.wire = SimulatedWire(self.worker.answer)
        self.drafter = RemoteDrafter(
            self.settings,
            FACTS,
            connect=self.wire.connect,
            clock_ns=lambda: self.now_ns,
            draw=lambda: 0.5,
            orders=self.orders,
        )
        self.rows: list[bytes] = []
        self.look()

    @property
    def link(self) -> Link:
        return self.drafter.link

    def look(self, **changes: object) -> None:
        """One look at the file, of another record where changes are given."""
        if changes:
            self.orders.say(**changes)
        assert self.drafter.control is not None
        self.drafter.control.turn()

    def step(self, n_rows: int = 1, n_out: int = 4) -> RoundResult:
        """The next rows of the request."""
        first = len(self.rows)
        fresh = [os.urandom(FACTS.row_bytes) for _ in range(n_rows)]
        self.rows += fresh
        cap = self.drafter.depth_max
        wanted = n_out if cap is None else min(n_out, cap)
        request = RoundRequest(0, "r", first, n_rows, 0, 5 if wanted else 0, wanted)
        return self.drafter.round([request], b"".join(fresh))

    def right(self, n_out: int = 4) -> list[int]:
        """What the worker drafts from the true window."""
        return list(drafts_of(self.rows[-FACTS.window :], 5, n_out, FACTS.vocabulary))

    def sent(self) -> list[Op]:
        """Everything that the worker got, over all connections."""
        return [peek(body, Kind.REQUEST).op for made in self.wire.connections for body in made.requests]

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads(json.dumps(self.drafter.stats(), allow_nan=False))
        return stats


def test_rounds_of_a_paused_engine_keep_their_rows_and_send_nothing() -> None:
    rig = Rig()
    rig.link.turn()
    assert rig.step(8).drafts[0].tolist() == rig.right()
    rig.look(state="paused", reason="a new kernel")
    rig.link.turn()
    said = rig.sent()
    assert said[-1] is Op.GOODBYE
    assert rig.wire.connections[-1].closed
    for _ in range(5):
        result = rig.step()
        assert (result.reason, bool(result.drafts.any())) == ("paused", False)
        assert result.outcomes.tolist() == [Outcome.ROUND_FAILED]
        assert rig.link.turn() == 0
    assert rig.sent() == said
    stats = rig.stats()
    counters = stats["counters"]
    assert (counters["rounds_paused"], counters["rounds_failed"], counters["rounds_ok"]) == (5, 0, 1)
    assert (counters["sessions_ordered_off"], counters["disconnects"], counters["connect_failures"]) == (
        1,
        0,
        0,
    )
    assert (stats["connected"], stats["control"]["state"], stats["control"]["reason"]) == (
        False,
        "paused",
        "a new kernel",
    )
    assert stats["control"]["pending"] is False


def test_the_first_round_after_resume_resends_the_window_and_drafts_exactly() -> None:
    rig = Rig()
    rig.link.turn()
    rig.step(8)
    rig.look(state="paused")
    for _ in range(9):
        rig.step()
    rig.worker.restart()
    rig.look(state="active")
    assert rig.stats()["control"]["pending"] is True
    assert rig.step().reason == "paused"
    rig.link.turn()
    assert rig.stats()["control"]["pending"] is False
    result = rig.step()
    assert result.ok.all()
    assert result.drafts[0].tolist() == rig.right()
    assert rig.drafter.core.counters.resync_rounds == 1


def test_a_round_that_begins_before_the_thread_looks_again_settles_the_order_itself() -> None:
    rig = Rig()
    rig.link.turn()
    rig.step(8)
    assert rig.drafter.control is not None
    rig.drafter.control._in_round = True  # as if a round were under way when the thread looks
    rig.look(state="paused")
    assert rig.link.session is not None
    assert rig.step().reason == "paused"
    assert rig.link.session is None


def test_an_engine_that_starts_paused_never_connects() -> None:
    rig = Rig()
    rig.look(state="paused")
    assert rig.link.turn() == 0
    assert rig.wire.connections == []
    assert rig.step().reason == "paused"


def test_a_worker_that_is_not_back_after_resume_is_a_failure_from_then_on() -> None:
    rig = Rig()
    rig.link.turn()
    rig.step(8)
    rig.look(state="paused")
    rig.wire.refuse = True
    rig.look(state="active")
    assert rig.step().reason == "paused"
    assert rig.link.turn() > 0
    assert rig.step().reason == "not_ready"
    rig.wire.refuse = False
    rig.link.turn()
    assert rig.step().drafts[0].tolist() == rig.right()


def test_a_pause_ends_no_engine_whose_failures_would() -> None:
    rig = Rig(ON_FAIL="raise")
    rig.link.turn()
    rig.step(8)
    rig.look(state="paused")
    assert not rig.drafter.must_raise(rig.step())
    rig.look(state="active")
    assert not rig.drafter.must_raise(rig.step())
    rig.link.turn()
    rig.wire.connections[-1].kill()
    assert rig.drafter.must_raise(rig.step())


# --- rearm ---


def misfit(rig: Rig) -> None:
    """A worker of another identity, and an engine that has heard of it."""
    right = rig.worker.shape
    rig.worker.shape = replace(right, identity=b"x" * 32)
    assert rig.link.turn() == 0
    assert rig.link.disabled
    assert rig.step(8).reason == "disabled"
    rig.worker.shape = right


def test_a_worker_that_was_put_right_is_taken_after_a_rearm_and_not_before() -> None:
    rig = Rig()
    misfit(rig)
    assert rig.link.turn() == 0
    assert len(rig.wire.connections) == 1
    rig.look(rearm=1)
    assert not rig.link.disabled
    rig.link.turn()
    assert rig.step().drafts[0].tolist() == rig.right()
    assert rig.stats()["control"]["rearms"] == 1
    assert rig.stats()["disabled"] == ""


def test_a_worker_that_is_still_wrong_is_refused_again_with_the_reason() -> None:
    rig = Rig()
    misfit(rig)
    rig.worker.shape = replace(rig.worker.shape, vocabulary=FACTS.vocabulary + 1)
    rig.look(rearm=1)
    rig.link.turn()
    assert "vocabulary" in rig.stats()["disabled"]
    assert rig.step().reason == "disabled"


def test_a_rearm_closes_the_breaker_and_forgets_the_delay() -> None:
    rig = Rig(TRIP="1", COOLDOWN="1000")
    rig.link.turn()
    rig.step(8)
    rig.wire.connections[-1].silent = True
    assert rig.step().reason == "timeout"
    assert rig.step().reason == "cooldown"
    rig.look(rearm=1)
    assert rig.stats()["breaker"]["state"] == "closed"
    rig.link.turn()
    assert rig.step().drafts[0].tolist() == rig.right()
    counters = rig.stats()["counters"]
    assert (counters["breaker_trips"], counters["breaker_recoveries"]) == (1, 1)


def test_a_rearm_while_paused_is_kept_for_the_resume() -> None:
    rig = Rig()
    misfit(rig)
    rig.look(state="paused")
    rig.look(rearm=1)
    assert rig.link.turn() == 0
    assert len(rig.wire.connections) == 1
    rig.look(state="active")
    rig.link.turn()
    assert rig.step().ok.all()


def during(rig: Rig, happen: Callable[[], None]) -> None:
    """Something happens while the link waits for the worker's answer to HELLO."""
    answer, first = rig.worker.answer, [True]

    def answered(body: Any) -> bytes:
        reply = answer(body)
        if first.pop() if first else False:
            happen()
        return reply

    rig.wire.answer = answered


def test_a_refusal_that_a_rearm_overtook_is_not_final() -> None:
    rig = Rig()
    right = rig.worker.shape
    rig.worker.shape = replace(right, identity=b"x" * 32)

    def put_right() -> None:
        rig.worker.shape = right
        rig.look(rearm=1)

    during(rig, put_right)
    rig.link.turn()
    assert not rig.link.disabled
    assert rig.step(8).reason == "paused"
    rig.link.turn()
    assert rig.step().ok.all()


def test_a_session_that_a_pause_overtook_is_ended_at_once() -> None:
    rig = Rig()
    during(rig, lambda: rig.look(state="paused"))
    rig.link.turn()
    assert rig.link.session is None
    assert rig.sent() == [Op.HELLO, Op.GOODBYE]
    assert rig.wire.connections[-1].closed


# --- a cap on draft positions ---


@pytest.mark.parametrize("cap", [0, 1, 3, 9])
def test_a_cap_bounds_what_is_asked_for_from_the_next_round_on(cap: int) -> None:
    rig = Rig()
    rig.link.turn()
    rig.step(8)
    rig.look(depth_max=cap)
    result = rig.step()
    asked = min(cap, 4)
    assert result.drafts[0, :asked].tolist() == rig.right(asked)
    assert not result.drafts[0, asked:].any()
    assert result.ok.all() == bool(cap)
    rig.look(depth_max=None)
    assert rig.step().drafts[0].tolist() == rig.right()


# --- with its threads ---


def test_a_running_drafter_obeys_its_file_and_tells_so_in_its_figures(tmp_path: Path) -> None:
    control, stats_file = tmp_path / "control.json", tmp_path / "stats.json"
    settings = make_settings(CONTROL_FILE=str(control), STATS_FILE=str(stats_file))
    worker = SimulatedWorker(session_shape(settings, FACTS))
    drafter = RemoteDrafter(settings, FACTS, connect=SimulatedWire(worker.answer).connect)
    try:
        assert drafter.start(DEADLINE_S)
        for state, connected in (("paused", False), ("active", True)):
            stats, why = wait_for(stats_file, order(control, "why", state=state), DEADLINE_S)
            assert stats is not None, why
            assert stats["connected"] is connected
            assert stats["control"]["reason"] == "why"
        ordered = order(control)
        assert wait_for(stats_file, ordered, DEADLINE_S)[0] is not None
        control.chmod(0o666)
        later = ordered.changed(written_at=ordered.written_at + 1)
        assert wait_for(stats_file, later, 1.0)[1].startswith(
            f"the engine refuses its control file {control}, "
        )
    finally:
        drafter.close()
    assert json.loads(stats_file.read_text())["control"]["state"] == "active"


def test_a_drafter_without_a_control_file_says_null() -> None:
    drafter = RemoteDrafter(make_settings(), FACTS, connect=SimulatedWire(lambda body: b"").connect)
    assert drafter.stats()["control"] is None
    assert drafter.depth_max is None


# --- as metrics ---


def test_what_is_in_effect_is_exported(tmp_path: Path) -> None:
    rig = Rig()
    rig.look(state="paused", rearm=7, depth_max=2)
    rig.orders.break_it()
    rig.look()
    families = {family.name: family for family in stats_families(rig.stats())}

    def value(name: str) -> float:
        (sample,) = families[f"spark_overlay_control_{name}"].samples
        return float(sample.value)

    names = ("paused", "pending", "problem", "depth_max", "rearm", "pauses", "rearms", "problems")
    assert [value(name) for name in names] == [1, 0, 1, 2, 7, 1, 1, 1]
    rig.look(state="active", depth_max=None)
    families = {family.name: family for family in stats_families(rig.stats())}
    assert [value(name) for name in ("paused", "pending", "problem")] == [0, 1, 0]
    assert "spark_overlay_control_depth_max" not in families


def test_an_engine_without_a_control_file_is_exported_as_not_paused() -> None:
    drafter = RemoteDrafter(make_settings(), FACTS, connect=SimulatedWire(lambda body: b"").connect)
    families = {family.name: family for family in stats_families(drafter.stats())}
    assert families["spark_overlay_control_paused"].samples[0].value == 0.0
    assert "spark_overlay_control_written_at" not in families
