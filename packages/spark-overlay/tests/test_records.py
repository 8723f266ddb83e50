"""What the drafter is told beside its rounds, and what it says of them: policies, wishes, figures, files."""

import json
import logging
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drafter_rig import FACTS, DrafterRig, make_settings
from hypothesis import given
from hypothesis import strategies as st
from ofl.contract.dspark_v1 import Goodbye, Status, decode_request
from spark_overlay import figures, report, rounds
from spark_overlay.interface import EngineFacts, LocalDrafts
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.wishes import Wishes

POLICIES = ("capacity", "resilience", "shadow")


class Rig(DrafterRig):
    """One request in slot 0, known by its newest round."""

    def __init__(self, facts: EngineFacts = FACTS, **changes: str) -> None:
        super().__init__(make_settings(**changes), facts)
        self.end = 0
        self.request = RoundRequest(0, "a", 0, 0, 0, 5, 4)

    def step(self, n_rows: int = 1, n_out: int = 4) -> RoundResult:
        self.request = RoundRequest(0, "a", self.end, n_rows, 0, 5, n_out)
        self.end += n_rows
        return self.drafter.round([self.request], os.urandom(n_rows * self.facts.row_bytes))


# --- ON_FAIL=raise ---


@pytest.mark.parametrize("policy", POLICIES)
def test_on_fail_raise_is_for_requests_that_lack_remote_drafts_in_every_policy(policy: str) -> None:
    rig = Rig(POLICY=policy, ON_FAIL="raise")
    must_raise = rig.drafter.must_raise
    assert must_raise(rig.step()), "no connection"
    assert not must_raise(rig.step(n_out=0)), "and none was wanted"
    rig.connect()
    assert not must_raise(rig.step())
    rig.worker.fail_slots = {0}
    assert must_raise(rig.step()), "one request failed on the worker"
    rig.worker.refuse_with = Status.BAD_MESSAGE
    assert must_raise(rig.step()), "the whole message was refused"
    rig.worker.refuse_with = None
    assert not must_raise(rig.step())
    rig.drafter.record_local_fallback(1)
    assert not must_raise(rig.step())


@pytest.mark.parametrize("policy", POLICIES)
def test_without_on_fail_raise_nothing_ends_the_engine(policy: str) -> None:
    rig = Rig(POLICY=policy)
    assert not rig.drafter.must_raise(rig.step())
    assert not rig.drafter.must_raise(rig.drafter.abort(1, RuntimeError("as the test asks")))


@pytest.mark.parametrize("outcome", Outcome)
def test_each_outcome_but_two_is_a_lack_of_drafts(outcome: Outcome) -> None:
    rig = Rig(ON_FAIL="raise")
    rig.connect()
    result = replace(rig.step(), outcomes=np.array([Outcome.OK, outcome], np.int32))
    assert rig.drafter.must_raise(result) == (outcome not in (Outcome.OK, Outcome.NO_DRAFT))


def test_a_request_described_wrongly_that_wanted_nothing_lacks_nothing() -> None:
    rig = Rig(ON_FAIL="raise")
    rig.connect()
    result = rig.drafter.round([RoundRequest(0, "a", -1, 0, 0, 5, 0)], b"")
    assert result.outcomes.tolist() == [Outcome.NO_DRAFT]
    assert rig.stats()["counters"]["req_bad"] == 1
    assert not rig.drafter.must_raise(result)


# --- wishes ---


@pytest.mark.parametrize(
    ("schedule", "changes", "expected"),
    [
        ((0, 4, 4, 2), {}, ([0, 4, 4, 2], "schedule")),
        ((4, 9, 3, 0), {}, ([0, 4, 3, 0], "schedule")),
        ((0, 4, 4, 4), {}, (None, "the schedule keeps every position")),
        ((), {}, (None, "no schedule")),
        ((0, 4, 4, 2), {"N_OUT": "0"}, (None, "VLLM_DSPARK_REMOTE_N_OUT is 0")),
        ((0, 4, 4, 2), {"POLICY": "shadow"}, (None, "shadow: all positions are compared")),
        ((), {"POLICY": "shadow", "N_OUT": "0"}, (None, "shadow: all positions are compared")),
        ((0, 4, 4, 2), {"POLICY": "resilience"}, ([0, 4, 4, 2], "schedule")),
    ],
)
def test_the_table_of_wishes_and_its_reason(
    schedule: tuple[int, ...], changes: dict[str, str], expected: tuple[list[int] | None, str]
) -> None:
    rig = Rig(replace(FACTS, draft_schedule=schedule), **changes)
    assert (rig.stats()["n_out_by_reqs"], rig.stats()["n_out_reason"]) == expected


@given(
    wishes=st.lists(st.integers(0, 4), max_size=3),
    policy=st.sampled_from(POLICIES),
    n_out=st.sampled_from(["0", "1"]),
)
def test_a_wish_is_taken_as_it_is_or_for_all_positions_and_none_stays_none(
    wishes: list[int], policy: str, n_out: str
) -> None:
    requests = [RoundRequest(slot, "a", 0, 1, 0, 5, wish) for slot, wish in enumerate(wishes)]
    asked = [
        request.n_out for request in Wishes(make_settings(POLICY=policy, N_OUT=n_out), FACTS).of(requests)
    ]
    if policy == "shadow" or n_out == "0":
        assert asked == [4 if wish else 0 for wish in wishes]
    else:
        assert asked == wishes


def test_shadow_asks_for_every_position() -> None:
    rig = Rig(POLICY="shadow")
    rig.connect()
    assert np.count_nonzero(rig.step(3, n_out=1).margins) == 4
    assert rig.stats()["counters"]["rounds_n_out_cut"] == 0


# --- shadow ---


def compare(rig: Rig, result: RoundResult, differs_at: int | None = None) -> None:
    drafts = result.drafts.astype(np.int64)
    if differs_at is not None:
        drafts[:, differs_at] = (drafts[:, differs_at] + 1) % FACTS.vocabulary
    rig.drafter.record_local(LocalDrafts(drafts, 250.0), [rig.request], result)


def test_shadow_counts_agreement_over_rounds_and_says_each_mismatch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig(POLICY="shadow")
    compare(rig, rig.step())
    rig.connect()
    for differs_at in (None, None, 2):
        compare(rig, rig.step(6), differs_at)
    rig.step(n_out=0)
    shadow = rig.stats()["shadow"]
    assert (shadow["eligible"], shadow["ineligible"]["round_failed"]) == (3, 1)
    assert shadow["first_mismatch_hist"] == [0, 0, 1, 0, 2]
    assert shadow["agree_rate_by_position"] == [1.0, 1.0, 0.666667, 1.0]
    (example,) = shadow["examples"]
    assert (example["request_id"], example["anchor"], example["first_mismatch"]) == ("a", 5, 2)
    told = [record.getMessage() for record in caplog.records if "shadow: request" in record.getMessage()]
    assert len(told) == 1
    assert f"local {example['local']}, remote {example['remote']}" in told[0]
    assert rig.stats()["latency"]["local_propose_us"]["count"] == 4


def test_a_partial_window_is_not_compared() -> None:
    rig = Rig(POLICY="shadow")
    rig.connect()
    rig.end = 100
    compare(rig, rig.step(2), differs_at=0)
    shadow = rig.stats()["shadow"]
    assert (shadow["eligible"], shadow["ineligible"]["partial_window"]) == (0, 1)


def test_mismatches_in_the_log_are_bounded_and_all_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MISMATCHES_LOGGED_MAX", 5)
    caplog.set_level(logging.INFO)
    rig = Rig(POLICY="shadow")
    rig.connect()
    rig.step(6)
    for _ in range(20):
        compare(rig, rig.step(1), differs_at=1)
    assert sum("shadow: request" in record.getMessage() for record in caplog.records) == 5
    assert caplog.text.count("further ones are counted") == 1
    assert rig.stats()["shadow"]["mismatches"] == 20


def test_a_request_s_name_begins_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig(POLICY="shadow")
    rig.connect()
    result = rig.step(6)
    rig.request = replace(rig.request, request_id="a\nERROR all is lost\x1b[2J")
    compare(rig, result, differs_at=0)
    (told,) = [record.getMessage() for record in caplog.records if "shadow: request" in record.getMessage()]
    assert told.isprintable()


def test_an_unknown_time_of_the_local_drafter_is_no_figure() -> None:
    rig = Rig(POLICY="shadow")
    rig.connect()
    result = rig.step()
    rig.drafter.record_local(LocalDrafts(result.drafts.astype(np.int64), float("nan")), [rig.request], result)
    assert rig.stats()["latency"]["local_propose_us"]["count"] == 0


@pytest.mark.parametrize("policy", ["capacity", "resilience"])
def test_only_shadow_has_an_agreement(policy: str) -> None:
    assert Rig(POLICY=policy).stats()["shadow"] is None


# --- fallback, acceptance ---


def test_local_fallback_is_counted_by_rounds_and_requests() -> None:
    rig = Rig(POLICY="resilience")
    rig.drafter.record_local_fallback(3)
    rig.drafter.record_local_fallback(1)
    counters = rig.stats()["counters"]
    assert (counters["local_fallback_rounds"], counters["local_fallback_requests"]) == (2, 4)


def test_the_alarm_is_logged_counted_and_ends_with_an_accepted_draft(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(ALARM_ROUNDS="5")
    rig.drafter.record_acceptance(1, 4, 10)
    for _ in range(4):
        rig.drafter.record_acceptance(0, 4, 10)
    assert not rig.stats()["acceptance_alarm"]
    for _ in range(20):
        rig.drafter.record_acceptance(0, 4, 10)
    assert rig.stats()["acceptance_alarm"]
    assert caplog.text.count("no draft was accepted in the last 5 verified rounds") == 1
    assert rig.stats()["counters"]["acceptance_alarms"] == 1
    rig.drafter.record_acceptance(1, 4, 10)
    assert not rig.stats()["acceptance_alarm"]


def test_a_verification_of_nothing_is_none() -> None:
    rig = Rig(ALARM_ROUNDS="1")
    rig.drafter.record_acceptance(0, 0, 10)
    assert rig.stats()["acceptance"]["verified"] == 0
    assert not rig.stats()["acceptance_alarm"]


# --- stats ---


def test_a_defect_of_the_seam_is_a_round_like_any_other() -> None:
    rig = Rig()
    rig.connect()
    rig.step()
    rig.drafter.abort(2, RuntimeError("as the test asks"))
    counters = rig.stats()["counters"]
    ends = ("rounds_ok", "rounds_failed", "rounds_some_failed", "rounds_append_only")
    assert counters["rounds"] == sum(counters[name] for name in ends) == 2


def test_facts_of_worker_and_transport_are_there_from_the_first_session_on() -> None:
    rig = Rig(FRAME_BYTES="20000")
    assert (rig.stats()["worker"], rig.stats()["transport"]) == (None, None)
    rig.connect()
    stats = rig.stats()
    assert stats["worker"] == {
        "name": "simulated",
        "boot_nonce": f"{1:016x}",
        "identity": "ab" * 32,
        "markov_identity": "cd" * 32,
        "window": 6,
        "block_length": 4,
        "max_slots": 3,
        "confidence": True,
        "fake_drafts": False,
    }
    transport = stats["transport"]
    assert (transport["scheme"], transport["version"], transport["boot_nonce"]) == ("tcp", 1, f"{7:016x}")
    assert transport["max_frame_bytes"] == transport["peer_max_frame_bytes"] == 20000
    assert transport["library"].startswith("ofl ")
    assert (transport["wire"], transport["authenticated"]) == ("simulated", False)


def test_what_the_seam_measured_is_part_of_the_figures() -> None:
    rig = Rig()
    assert rig.stats()["memory"] is None
    rig.drafter.memory = {"ring_bytes": 12}
    assert rig.stats()["memory"] == {"ring_bytes": 12}


def test_the_figures_stay_small_whatever_happens() -> None:
    rig = Rig(POLICY="shadow", LOG_EVERY="0", TRIP="0")
    rig.connect()
    sizes = []
    for number in range(3000):
        rig.worker.fail_slots = {0} if number % 5 == 0 else set()
        compare(rig, rig.step(1 if rig.end < 490 else 0), differs_at=number % 4)
        rig.drafter.record_acceptance(number % 5, 4, number)
        rig.wire.connections[0].requests.clear()
        if number % 1000 == 999:
            sizes.append(len(json.dumps(rig.drafter.stats())))
    assert sizes[-1] < 20_000
    assert sizes[-1] - sizes[0] < 1_000, "only digits are added"


# --- the file ---


def test_the_log_says_at_the_start_what_connects_to_what(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig(POLICY="resilience")
    try:
        assert rig.drafter.start(20.0)
    finally:
        rig.drafter.close()
    assert "remote DSpark (resilience policy) rank 0 -> tcp://worker:18620" in caplog.text
    assert f"(session {rig.drafter.engine_id.hex()}, epoch 1)" in caplog.text


def test_the_file_is_there_before_the_first_round_and_tells_of_the_end_after_the_last(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    rig = Rig(STATS_FILE=str(path))
    written = threading.Event()
    write, said = report.write_json, []

    def spy(where: Path, snapshot: Any) -> None:
        write(where, snapshot)
        said.append(snapshot["counters"]["rounds"])
        written.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "write_json", spy)
        assert rig.drafter.start(20.0)
        assert written.wait(20.0)
        assert json.loads(path.read_text())["counters"]["rounds"] == 0
        rig.step()
        rig.drafter.close()
    last = json.loads(path.read_text())
    assert last["counters"]["rounds"] == 1
    assert not last["connected"]


def test_the_last_figures_are_written_before_the_worker_is_told_or_anything_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM may kill a rank that is still saying goodbye."""
    path = tmp_path / "stats.json"
    rig = Rig(STATS_FILE=str(path))
    then: list[dict[str, Any]] = []
    answer = rig.worker.answer

    def spy(body: bytes) -> bytes:
        _, request = decode_request(body, rig.worker.shape)
        if isinstance(request, Goodbye):
            then.append(json.loads(path.read_text()))
        return answer(body)

    monkeypatch.setattr(rig.wire, "answer", spy)
    assert rig.drafter.start(20.0)
    rig.step()
    rig.drafter.close()
    (left,) = then
    assert (left["counters"]["rounds"], left["connected"], left["epoch"]) == (1, False, 1)
    assert json.loads(path.read_text()) == left, "and nothing writes over them"


def test_the_epoch_told_is_that_of_the_last_session_that_rounds_used() -> None:
    rig = Rig()
    told = []

    def step() -> None:
        rig.step()
        told.append((rig.stats()["connected"], rig.stats()["epoch"]))

    step()
    for reason in ("the first ends", "the second ends"):
        rig.connect()
        step()
        session = rig.drafter.link.session
        assert session is not None
        rig.drafter.link.lost(session, reason)
        step()
    rig.drafter.close()
    assert told == [(False, 0), (True, 1), (False, 1), (True, 2), (False, 2)]
    assert rig.stats()["epoch"] == 2


def test_rounds_write_the_file_every_so_often_without_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    posts: list[bool] = []
    monkeypatch.setattr(report.Reporter, "post", lambda self, snapshot, *, say: posts.append(say))
    rig = Rig(STATS_FILE="stats.json")
    rig.step()
    rig.now_ns = rounds.WRITE_EVERY_NS - 1
    rig.step()
    assert posts == []
    rig.now_ns += 1
    rig.step()
    rig.step()
    assert posts == [False]


def test_an_idle_engine_keeps_its_file_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stats.json"
    monkeypatch.setattr(report, "REWRITE_S", 0.01)
    rig = Rig(STATS_FILE=str(path))
    seen, shown = threading.Event(), report.write_json

    def spy(where: Path, snapshot: Any) -> None:
        shown(where, snapshot)
        if snapshot["connected"]:
            seen.set()

    monkeypatch.setattr(report, "write_json", spy)
    try:
        assert rig.drafter.start(20.0)
        assert seen.wait(20.0), "no round was made, and the file still tells of the session"
        assert json.loads(path.read_text())["counters"]["hellos"] == 1
    finally:
        rig.drafter.close()


def test_a_file_that_cannot_be_written_is_said_once_until_it_can_be_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    reporter = report.Reporter(folder / "stats.json", lambda snapshot: snapshot)

    def write(times: int) -> None:
        for number in range(times):
            reporter.post({"number": number}, say=False)
            reporter.close()  # without a thread it writes here

    write(1)
    for _ in range(2):
        shutil.rmtree(folder)
        write(3)
        folder.mkdir()
        write(2)
    assert caplog.text.count("cannot be written") == 2
    assert json.loads((folder / "stats.json").read_text()) == {"number": 1}
    assert [entry.name for entry in folder.iterdir()] == ["stats.json"]


@pytest.mark.parametrize(
    ("say", "kind"), [(False, "ValueError"), (True, "KeyError")], ids=["in the file", "in the log line"]
)
def test_a_defect_in_a_snapshot_neither_ends_the_writing_nor_stays_unsaid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, say: bool, kind: str
) -> None:
    written, shown = threading.Event(), report.write_json

    def spy(where: Path, snapshot: Any) -> None:
        shown(where, snapshot)
        written.set()

    monkeypatch.setattr(report, "write_json", spy)
    monkeypatch.setattr(report, "REWRITE_S", 0.01)
    defects = iter([ValueError("not a number"), KeyError("counters")])

    def refresh(snapshot: Any) -> Any:
        if (defect := next(defects, None)) is not None:
            raise defect
        return {"refreshed": True}

    reporter = report.Reporter(tmp_path / "stats.json", refresh)
    reporter.start()
    try:
        reporter.post({"bad": float("nan")}, say=say)
        assert written.wait(20.0), "the thread outlives what is wrong with one snapshot"
    finally:
        reporter.close()
    assert json.loads((tmp_path / "stats.json").read_text()) == {"refreshed": True}
    assert caplog.text.count(f"a defect of the overlay kept the stats file back: {kind}") == 1
