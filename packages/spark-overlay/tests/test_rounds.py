"""The driver: a round never raises and never waits for a connect, whatever happens to its connection."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drafter_rig import FACTS, FULL_ATTENTION, DrafterRig, make_settings
from ofl.contract.dspark_v1 import Kind, Op, RowDtype, Status, Step, decode_request, peek
from ofl.errors import TransportError
from spark_overlay.driver import RoundDriver
from spark_overlay.interface import EngineFacts, RemoteUnavailableError
from spark_overlay.misses import WINDOW_ROUNDS
from spark_overlay.report import log_line
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.rounds import RemoteDrafter, session_shape
from spark_overlay.settings import Settings, SettingsError
from spark_overlay.simulation.transport import SimulatedTransport, SimulatedWire
from spark_overlay.simulation.worker import drafts_of

MICROSECOND = 1000


class Rig(DrafterRig):
    """One request in slot 1, its rows kept."""

    def __init__(self, settings: Settings | None = None, facts: EngineFacts = FACTS, now_ns: int = 0) -> None:
        super().__init__(settings or make_settings(), facts)
        self.now_ns = now_ns
        self.rows: list[bytes] = []

    def step(self, n_rows: int, n_out: int = 4, anchor: int = 5) -> RoundResult:
        """The next rows of one request in slot 1."""
        first = len(self.rows)
        self.rows += [os.urandom(self.facts.row_bytes) for _ in range(n_rows)]
        request = RoundRequest(1, "a", first, n_rows, 0, anchor, n_out)
        return self.drafter.round([request], b"".join(self.rows[first:]), gather_us=3.0)

    def expected(self, n_out: int = 4, anchor: int = 5) -> list[int]:
        return list(drafts_of(self.rows[-self.facts.window :], anchor, n_out, self.facts.vocabulary))

    def counters(self) -> dict[str, int]:
        """Those that are not zero."""
        return {name: count for name, count in super().counters().items() if count}


def test_a_round_drafts_from_the_rows_that_were_given() -> None:
    rig = Rig()
    rig.connect()
    result = rig.step(10)
    assert result.reason == ""
    assert result.drafts.tolist() == [rig.expected()]
    assert result.ok.tolist() == [True]
    result = rig.step(2)
    assert result.drafts.tolist() == [rig.expected()]
    assert rig.counters()["rounds_ok"] == 2


def test_without_a_connection_rounds_fail_at_once_and_the_first_one_after_it_drafts() -> None:
    rig = Rig()
    for _ in range(3):
        result = rig.step(3)
        assert result.reason == "not_ready"
        assert not result.drafts.any()
        assert result.outcomes.tolist() == [Outcome.ROUND_FAILED]
    assert rig.wire.attempts == 0, "a round never connects"
    rig.connect()
    assert rig.step(1).drafts.tolist() == [rig.expected()]
    assert rig.counters()["fallback_not_ready"] == 3
    assert rig.counters()["resync_rounds"] == 1
    assert rig.counters()["resync_rows"] == 5, "a window of 6 less the new row"


def test_a_lost_connection_fails_one_round_and_the_next_session_resyncs() -> None:
    rig = Rig()
    rig.connect()
    rig.step(10)
    rig.wire.connections[0].kill()
    assert rig.step(2).reason == "transport_error"
    assert rig.drafter.link.session is None
    assert rig.step(2).reason == "not_ready"
    rig.worker.restart()
    rig.connect()
    assert rig.step(1).drafts.tolist() == [rig.expected()]
    counters = rig.counters()
    assert (counters["disconnects"], counters["hellos"], counters["resync_rounds"]) == (1, 2, 1)


def test_a_reply_after_the_deadline_is_cancelled_and_never_used() -> None:
    rig = Rig()
    transport = rig.connect()
    rig.step(10)
    transport.silent = True
    result = rig.step(2)
    assert result.reason == "timeout"
    assert not result.drafts.any()
    assert transport.cancelled
    transport.silent = False
    assert rig.step(1).drafts.tolist() == [rig.expected()]
    assert rig.counters()["fallback_timeout"] == 1
    assert rig.drafter.link.session is not None, "the connection is kept"


def test_an_engine_whose_rounds_keep_missing_the_deadline_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(make_settings(TRIP="0"))
    transport = rig.connect()
    rig.step(10)
    transport.silent = True
    for _ in range(2 * WINDOW_ROUNDS):
        rig.step(0)
    told = [record for record in caplog.records if "missed their deadline" in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING"]


def test_a_round_whose_messages_cannot_leave_in_time_is_as_if_never_built() -> None:
    rig = Rig()
    transport = rig.connect()
    rig.step(10)
    before = rig.counters()
    transport.stuck = True
    assert rig.step(2).reason == "timeout"
    assert rig.counters()["rows_sent"] == before["rows_sent"]
    transport.stuck = False
    assert rig.step(1).drafts.tolist() == [rig.expected()]


def test_every_wait_gets_the_deadline_of_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(make_settings(TIMEOUT_MS="7.5"), now_ns=1000)
    rig.connect()
    deadlines = []
    submit, wait = SimulatedTransport.submit, SimulatedTransport.wait

    def spy(call: Any) -> Any:
        def with_deadline(*args: Any, deadline_ns: int) -> Any:
            deadlines.append(deadline_ns)
            return call(*args, deadline_ns=deadline_ns)

        return with_deadline

    monkeypatch.setattr(SimulatedTransport, "submit", spy(submit))
    monkeypatch.setattr(SimulatedTransport, "wait", spy(wait))
    rig.step(3)
    assert deadlines == [1000 + 7_500_000] * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda body: b"",
        lambda body: body[:-1],
        lambda body: body + b"\0",
        lambda body: b"GET / HTTP/1.1\r\n" * 4,
        lambda body: body[:16] + bytes(8) + body[24:],
        lambda body: body[:-48] + b"\xff\xff\xff\x7f" + body[-44:],
    ],
    ids=["empty", "short", "long", "garbage", "another round", "id outside the vocabulary"],
)
def test_a_reply_that_the_contract_forbids_is_not_used_and_said(change: Any) -> None:
    rig = Rig()
    transport = rig.connect()
    rig.step(10)
    transport.change = change
    result = rig.step(2)
    assert result.reason == "bad_reply"
    assert not result.drafts.any()
    assert rig.drafter.stats()["last_bad_reply"] == result.detail != ""
    transport.change = bytes
    assert rig.step(1).drafts.tolist() == [rig.expected()]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_refused_message_is_counted_under_its_status(status: Status) -> None:
    rig = Rig()
    rig.connect()
    rig.step(10)
    rig.worker.refuse_with = status
    result = rig.step(2)
    assert result.reason == f"frame_{status.name.lower()}"
    assert rig.counters()[f"fallback_{result.reason}"] == 1
    rig.worker.refuse_with = None
    if status in (Status.NO_SESSION, Status.STALE_EPOCH, Status.DRAINING, Status.DRAFTER):
        assert rig.step(1).reason == "not_ready", "the session was given up"
        rig.connect()
    assert rig.step(1).drafts.tolist() == [rig.expected()]


def test_a_worker_that_forgot_the_session_gets_a_new_one() -> None:
    rig = Rig()
    rig.connect()
    rig.step(10)
    rig.worker.epoch = 0
    assert rig.step(1).reason == "frame_no_session"
    assert rig.step(1).reason == "not_ready"
    rig.connect()
    assert rig.step(1).ok.all()


def test_a_newer_generation_on_the_worker_asks_for_a_new_session() -> None:
    rig = Rig()
    rig.connect()
    rig.step(10)
    rig.worker.windows[1].generation = 99
    assert rig.step(1).outcomes.tolist() == [Outcome.STALE_GENERATION]
    assert rig.step(1).reason == "not_ready"
    rig.connect()
    assert rig.step(1).drafts.tolist() == [rig.expected()]
    assert rig.counters()["stale_generation_new_sessions"] == 1
    assert rig.counters()["req_status_stale_generation"] == 1


def test_a_disabled_remote_is_counted_as_such() -> None:
    rig = Rig()
    rig.worker.shape = session_shape(make_settings(IDENTITY="ef" * 32), FACTS)
    rig.drafter.link.attempt()
    result = rig.step(2)
    assert result.reason == "disabled"
    assert "hello.identity" in result.detail
    assert rig.drafter.stats()["disabled"] == result.detail


@pytest.mark.parametrize(
    "requests",
    [
        [RoundRequest(slot, "a", 0, 0, 0, 0, 0) for slot in range(4)],
        [RoundRequest(1, "a", 0, 1, 0, 5, 4), RoundRequest(1, "b", 0, 1, 0, 5, 4)],
        [None],
    ],
    ids=["too many", "one slot twice", "no request"],
)
def test_a_defect_on_our_side_never_reaches_the_engine(requests: list[Any]) -> None:
    rig = Rig()
    rig.connect()
    rig.step(10)
    result = rig.drafter.round(requests, bytes(FACTS.row_bytes))
    assert result.reason == "internal_error"
    assert result.drafts.shape == (len(requests), 4)
    assert not result.drafts.any()
    assert not result.ok.any()
    assert rig.drafter.stats()["last_internal_error"]
    rig.connect()
    assert rig.step(1).ok.all(), "and rounds go on, from a partial window"
    assert rig.counters()["partial_rounds"] == 1


@pytest.mark.parametrize(
    "bad",
    [
        RoundRequest(7, "b", 0, 1, 0, 5, 4),
        RoundRequest(-1, "b", 0, 1, 0, 5, 4),
        RoundRequest(0, "b", 0, 1, 0, 1000, 4),
        RoundRequest(0, "b", 0, 1, 0, -1, 4),
        RoundRequest(0, "b", 0, 9, 0, 5, 4),
        RoundRequest(0, "b", 0, 1, 0, 5, 5),
        RoundRequest(0, "b", 500, 1, 0, 5, 4),
        RoundRequest(0, "b", -1, 1, 0, 5, 4),
    ],
)
def test_a_request_described_wrongly_costs_only_itself(bad: RoundRequest) -> None:
    rig = Rig()
    rig.connect()
    row = bytes(range(32))
    result = rig.drafter.round([RoundRequest(1, "a", 0, 1, 0, 5, 4), bad], row)
    assert result.outcomes.tolist() == [Outcome.OK, Outcome.BAD_REQUEST]
    assert result.drafts[0].tolist() == list(drafts_of([row], 5, 4, 1000))
    assert rig.counters()["req_bad"] == 1


def test_a_request_without_any_row_has_nothing_to_draft_from() -> None:
    rig = Rig()
    rig.connect()
    result = rig.drafter.round([RoundRequest(0, "a", 20, 0, 0, 5, 4)], b"")
    assert result.outcomes.tolist() == [Outcome.NO_CONTEXT]


def test_a_prefix_cache_hit_drafts_from_a_partial_window_until_it_is_whole() -> None:
    rig = Rig()
    rig.connect()
    rig.rows = [b""] * 100
    for _ in range(3):
        result = rig.step(2)
        anchor = len(rig.rows)
        window = rig.rows[max(100, anchor - 6) :]
        assert result.drafts[0].tolist() == list(drafts_of(window, 5, 4, 1000))
    assert rig.counters()["partial_starts"] == 1
    assert rig.counters()["partial_rounds"] == 2, "with six rows the window is whole"


def test_only_the_last_window_of_a_long_prompt_is_sent() -> None:
    rig = Rig()
    rig.connect()
    rig.step(100, n_out=0)
    rig.step(100)
    assert rig.counters()["rows_sent"] == 2 * FACTS.window


def test_a_long_round_goes_in_messages_that_nobody_waits_for_but_the_last() -> None:
    rig = Rig(make_settings(FRAME_BYTES="9000"), FULL_ATTENTION)
    transport = rig.connect()
    result = rig.step(20)
    assert result.drafts[0].tolist() == list(drafts_of(rig.rows, 5, 4, 1000))
    steps = [decode_request(body, rig.worker.shape)[1] for body in transport.requests[1:]]
    wishes = []
    for step in steps:
        assert isinstance(step, Step)
        wishes.append(sum(entry.n_out for entry in step.entries))
    assert wishes == [0] * (len(steps) - 1) + [4]
    assert len(steps) == 5, "four rows of 2,048 bytes fit in 9,000 with their headers"
    assert rig.step(1).ok.all()


def test_many_requests_in_one_round_stay_within_the_parts_of_a_message() -> None:
    facts = EngineFacts(1000, 16, RowDtype.BFLOAT16, 2, 6, 500, 4, 100)
    rig = Rig(facts=facts)
    rig.connect()
    rows = os.urandom(100 * facts.row_bytes)
    requests = [RoundRequest(slot, f"r{slot}", 0, 1, slot, 5, 4) for slot in range(100)]
    result = rig.drafter.round(requests, rows)
    for slot in range(100):
        row = rows[slot * facts.row_bytes : (slot + 1) * facts.row_bytes]
        assert result.drafts[slot].tolist() == list(drafts_of([row], 5, 4, 1000))


def test_drafts_are_not_used_while_earlier_rows_are_unacknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(make_settings(FRAME_BYTES="9000"), FULL_ATTENTION)
    rig.connect()
    monkeypatch.setattr(RoundDriver, "_take_acknowledgements", lambda self, session: None)
    result = rig.step(20)
    assert result.outcomes.tolist() == [Outcome.UNCONFIRMED]
    assert not result.drafts.any()
    monkeypatch.undo()
    assert rig.step(1).ok.all()


def test_n_out_is_honoured_or_overruled_as_the_setting_says() -> None:
    rig = Rig()
    rig.connect()
    result = rig.step(5, n_out=2)
    assert result.drafts[0].tolist() == [*rig.expected(2), 0, 0]
    assert rig.counters()["rounds_n_out_cut"] == 1
    whole = Rig(make_settings(N_OUT="0"))
    whole.connect()
    assert whole.step(5, n_out=2).drafts[0].tolist() == whole.expected(4)
    assert whole.step(1, n_out=0).outcomes.tolist() == [Outcome.NO_DRAFT]


def test_rounds_that_want_no_drafts_wait_for_nothing() -> None:
    rig = Rig()
    transport = rig.connect()
    transport.silent = True
    result = rig.step(5, n_out=0)
    assert result.reason == ""
    assert result.outcomes.tolist() == [Outcome.NO_DRAFT]
    transport.silent = False
    assert rig.step(1).drafts.tolist() == [rig.expected()]
    assert rig.counters()["rounds_append_only"] == 1


def test_a_worker_that_never_acknowledges_is_given_up() -> None:
    rig = Rig()
    transport = rig.connect()
    transport.silent = True
    for _ in range(200):
        rig.step(1, n_out=0)
    assert rig.counters()["disconnects"] == 1
    assert transport.closed


def test_a_connection_replaced_in_the_middle_of_a_round_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.connect()
    rig.step(10)
    rig.replace_connections(monkeypatch)
    sent = len(rig.wire.connections[0].requests)
    assert rig.step(1).reason == "reconnected"
    assert len(rig.wire.connections[0].requests) == sent, "nothing was sent"
    monkeypatch.undo()
    assert rig.step(1).drafts.tolist() == [rig.expected()]


def test_a_transport_that_raises_something_else_is_an_internal_error() -> None:
    rig = Rig()
    transport = rig.connect()

    def explode(body: bytes) -> bytes:
        raise ZeroDivisionError("in the library")

    transport.change = explode
    result = rig.step(3)
    assert result.reason == "internal_error"
    assert "ZeroDivisionError" in result.detail


def test_on_fail_raise_is_answered_only_for_rounds_that_lack_drafts() -> None:
    rig = Rig(make_settings(ON_FAIL="raise"))
    assert rig.drafter.must_raise(rig.step(2))
    rig.connect()
    assert not rig.drafter.must_raise(rig.step(2))
    assert not rig.drafter.must_raise(rig.step(2, n_out=0))
    assert not Rig().drafter.must_raise(Rig().step(2))


def test_on_fail_raise_needs_a_worker_at_the_start() -> None:
    rig = Rig(make_settings(ON_FAIL="raise", CONNECT_TIMEOUT_MS="50"))
    rig.wire.refuse = True
    try:
        with pytest.raises(RemoteUnavailableError, match="nobody listens"):
            rig.drafter.start()
    finally:
        rig.drafter.close()


def test_settings_that_leave_no_room_for_a_round_are_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="VLLM_DSPARK_REMOTE_FRAME_BYTES: max_frame_bytes 100 is below"):
        RemoteDrafter(make_settings(FRAME_BYTES="100"), FACTS, connect=SimulatedWire(bytes).connect)
    with pytest.raises(SettingsError, match="VLLM_DSPARK_REMOTE_ROUND_BYTES: round_bytes_max 10 is below"):
        RemoteDrafter(make_settings(ROUND_BYTES="10"), FACTS, connect=SimulatedWire(bytes).connect)


@pytest.mark.parametrize("size", ["4000", str((1 << 30) + 1), str(1 << 60)])
def test_a_frame_limit_that_no_hello_can_state_is_refused_at_the_start(size: str) -> None:
    with pytest.raises(SettingsError, match=r"VLLM_DSPARK_REMOTE_FRAME_BYTES: .* hello\.max_frame_bytes: "):
        RemoteDrafter(make_settings(FRAME_BYTES=size), FACTS, connect=SimulatedWire(bytes).connect)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("max_slots: 1025", replace(FACTS, max_slots=1025)),
        ("block_length: 65", replace(FACTS, block_length=65)),
        ("tap_count: 65", replace(FACTS, tap_count=65)),
    ],
    ids=["max_slots", "block_length", "tap_count"],
)
def test_an_engine_that_no_hello_can_state_is_refused_at_the_start(name: str, facts: EngineFacts) -> None:
    with pytest.raises(SettingsError, match=rf"no worker can serve this engine: hello\.{name}"):
        RemoteDrafter(make_settings(), facts, connect=SimulatedWire(bytes).connect)


def test_life_from_start_to_close_with_the_figures_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    rig = Rig(make_settings(STATS_FILE=str(path), LOG_EVERY="2"))
    assert rig.drafter.start(20.0)
    for _ in range(3):
        assert rig.step(3).ok.all()
    rig.drafter.record_acceptance(2, 4, 30)
    rig.drafter.record_acceptance(0, 4, 33)
    rig.drafter.close()
    rig.drafter.close()
    written = json.loads(path.read_text())
    assert written["counters"]["rounds_ok"] == 3
    assert written["acceptance"]["accepted_per_round"] == 1.0
    assert written["acceptance"]["rate_by_position"] == [0.5, 0.5, 0.0, 0.0]
    assert written["latency"]["rtt_us"]["count"] == 3
    assert written["worker"]["name"] == "simulated"
    assert written["policy"] == "capacity"
    assert "3 rounds ok" in log_line(written)
    assert [name.name for name in tmp_path.iterdir()] == ["stats.json"], "no temporary file is left"
    assert peek(rig.wire.connections[0].requests[-1], Kind.REQUEST).op is Op.GOODBYE
    assert rig.wire.connections[0].closed


def test_times_are_split_into_gather_wire_and_worker() -> None:
    rig = Rig()
    transport = rig.connect()

    def slow(body: bytes) -> bytes:
        rig.now_ns += 100 * MICROSECOND
        return body

    transport.change = slow
    rig.step(3)
    latency: Any = rig.drafter.stats()["latency"]
    assert latency["gather_us"]["max"] == 3.0
    assert latency["rtt_us"]["max"] == 100.0
    assert latency["worker_us"]["max"] == 43.0, "the simulated worker says 3 + 40"
    assert latency["wire_us"]["max"] == 57.0
    assert latency["rank0_round_us"]["max"] == 103.0


def test_a_stats_file_that_cannot_be_written_costs_no_round(tmp_path: Path, caplog: Any) -> None:
    rig = Rig(make_settings(STATS_FILE=str(tmp_path / "missing" / "stats.json"), LOG_EVERY="1"))
    rig.drafter.start(20.0)
    for _ in range(5):
        assert rig.step(1).ok.all()
    rig.drafter.close()
    assert caplog.text.count("cannot be written") == 1


def test_two_thousand_requests_leave_nothing_behind() -> None:
    """Memory is bounded by slots, not by requests: no container grows with them."""
    rig = Rig()
    rig.connect()
    rig.wire.connections[0].requests = Forgetful()
    row = bytes(FACTS.row_bytes)
    for number in range(2_000):
        rig.drafter.round([RoundRequest(number % 3, f"r{number}", 0, 1, 0, 5, 1)], row)
    core = rig.drafter.core
    assert core.counters.rounds_ok == 2_000
    assert len(core.session.outstanding) == 0
    assert len(rig.drafter._driver.acknowledgements) == 0


class Forgetful(list[bytes]):
    """A list that keeps nothing."""

    def append(self, value: bytes) -> None:
        pass


def test_the_real_transport_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    from ofl import client

    def refuse(*args: Any, **limits: Any) -> Any:
        raise TransportError("as the test asks")

    monkeypatch.setattr(client, "connect", refuse)
    drafter = RemoteDrafter(make_settings(), FACTS)
    assert not drafter.link.attempt()
    assert drafter.stats()["last_failure"] == "as the test asks"
