"""What operators read and set, one by one: each figure counts what its meaning says, each setting reaches its use."""

import math
import os
import random
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from drafter_rig import FULL_ATTENTION, DrafterRig, make_settings
from ofl.contract.dspark_v1 import (
    Envelope,
    Hello,
    HelloFlag,
    HelloReply,
    Kind,
    Op,
    Policy,
    Status,
    decode_request,
    peek,
)
from ofl.errors import DeadlineError
from spark_overlay.interface import EngineFacts
from spark_overlay.report import Reporter
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.ring import ring_rows_needed
from spark_overlay.rounds import make_core
from spark_overlay.simulation.transport import SimulatedTransport, SimulatedWire
from spark_overlay.simulation.worker import SimulatedWorker, drafts_of

FACTS = replace(FULL_ATTENTION, window=6)


class Rig(DrafterRig):
    """Requests `r0`, `r1`, .. in slots 0, 1, .., their rows kept."""

    def __init__(self, facts: EngineFacts = FACTS, **changes: str) -> None:
        super().__init__(make_settings(**changes), facts)
        self.rows: dict[int, list[bytes]] = {}

    def step(self, *n_rows: int, n_out: int = 4) -> RoundResult:
        """The next rows of each request."""
        requests, buffer = [], b""
        for slot, count in enumerate(n_rows):
            fresh = [os.urandom(self.facts.row_bytes) for _ in range(count)]
            rows = self.rows.setdefault(slot, [])
            offset = len(buffer) // self.facts.row_bytes
            requests.append(RoundRequest(slot, f"r{slot}", len(rows), count, offset, 5, n_out))
            rows += fresh
            buffer += b"".join(fresh)
        return self.drafter.round(requests, buffer)

    def expected(self, slot: int) -> list[int]:
        return list(drafts_of(self.rows[slot][-self.facts.window :], 5, 4, self.facts.vocabulary))


def lose_its_last_row(worker: SimulatedWorker, slot: int) -> None:
    del worker.windows[slot].rows[-1]


# --- figures ---


def test_what_crossed_the_wire_is_counted_to_the_byte() -> None:
    rig = Rig(FULL_ATTENTION, FRAME_BYTES="9000")
    rig.connect()
    transport, replies = rig.wire.connections[0], []

    def keep(body: bytes) -> bytes:
        replies.append(body)
        return bytes(body)

    transport.change = keep
    rig.step(20)
    rig.step(3)
    rig.step(2, n_out=2)
    steps = [body for body in transport.requests if peek(body, Kind.REQUEST).op is Op.STEP]
    counters = rig.counters()
    assert counters["frames_sent"] == len(steps) > 3, "the first round goes in several messages"
    assert counters["bytes_sent"] == sum(len(body) for body in steps)
    assert counters["bytes_received"] == sum(len(body) for body in replies)
    assert counters["rows_sent"] == 25
    assert counters["draft_tokens"] == 4 + 4 + 2
    assert (counters["rounds"], counters["rounds_ok"], counters["resync_rows"]) == (3, 3, 0)


@pytest.mark.parametrize(
    ("disturb", "name"),
    [
        (SimulatedWorker.forget_slot, "needs_reset"),
        (lose_its_last_row, "gap"),
        (SimulatedWorker.fail_once, "drafter"),
        (SimulatedWorker.newer_generation, "stale_generation"),
    ],
)
def test_a_request_that_fails_alone_is_counted_under_its_status_and_costs_no_other(
    disturb: Callable[[SimulatedWorker, int], None], name: str
) -> None:
    rig = Rig()
    rig.connect()
    assert rig.step(10, 10).ok.all()
    disturb(rig.worker, 1)
    result = rig.step(1, 1)
    assert result.outcomes.tolist() == [Outcome.OK, Outcome[name.upper()]]
    assert result.drafts.tolist() == [rig.expected(0), [0, 0, 0, 0]]
    assert result.reason == ""
    counters = rig.counters()
    assert counters[f"req_status_{name}"] == 1
    assert (counters["rounds_ok"], counters["rounds_some_failed"], counters["rounds_failed"]) == (1, 1, 0)
    if name == "stale_generation":
        assert rig.step(1, 1).reason == "not_ready", "a new session is asked for"
        rig.connect()
    result = rig.step(1, 1)
    assert result.drafts.tolist() == [rig.expected(0), rig.expected(1)]
    assert rig.counters()["resync_rows"] >= FACTS.window - 1


def test_a_refused_append_is_counted_and_the_drafts_over_it_are_not_used() -> None:
    rig = Rig(FULL_ATTENTION, FRAME_BYTES="9000")
    rig.connect()
    rig.step(4)
    calls = []

    def refuse_the_first(body: bytes) -> bytes:
        calls.append(body)
        rig.worker.refuse_with = None
        return bytes(body)

    rig.wire.connections[0].change = refuse_the_first
    rig.worker.refuse_with = Status.BUSY
    # Of these rows the first message is refused; the last one then does not join what the worker holds.
    result = rig.step(7)
    assert not result.ok.any()
    assert len(calls) > 1
    assert rig.counters()["append_refused"] >= 1
    rig.wire.connections[0].change = bytes
    assert rig.step(1).ok.all()


def test_drafts_over_rows_that_nobody_acknowledged_are_counted_as_unconfirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(FULL_ATTENTION, FRAME_BYTES="9000")
    rig.connect()
    wait = SimulatedTransport.wait

    def only_what_is_awaited(self: SimulatedTransport, sequence: int, *, deadline_ns: int) -> bytearray:
        if deadline_ns == 0:  # only what is there already
            raise DeadlineError("not there yet")
        return wait(self, sequence, deadline_ns=deadline_ns)

    monkeypatch.setattr(SimulatedTransport, "wait", only_what_is_awaited)
    assert rig.step(20).outcomes.tolist() == [Outcome.UNCONFIRMED]
    assert rig.counters()["req_unconfirmed"] == 1


def test_a_request_without_rows_is_counted_as_such() -> None:
    rig = Rig()
    rig.connect()
    rig.drafter.round([RoundRequest(0, "a", 20, 0, 0, 5, 4)], b"")
    assert rig.counters()["req_no_context"] == 1


def test_lives_of_a_slot_and_rollbacks_within_one_are_told_apart() -> None:
    rig = Rig()
    rig.connect()

    def step(name: str, first: int, count: int, added: bool = False) -> None:
        request = RoundRequest(0, name, first, count, 0, 5, 4, added)
        assert rig.drafter.round([request], bytes(count * FACTS.row_bytes)).ok.all()

    def seen() -> tuple[int, int, int]:
        counters = rig.counters()
        return counters["generation_bumps"], counters["rollbacks"], counters["partial_starts"]

    step("a", 0, 10)
    assert seen() == (1, 0, 0)
    step("a", 8, 3)
    assert seen() == (1, 1, 0), "two rows taken back"
    step("b", 0, 4)
    assert seen() == (2, 1, 0), "another request in the slot"
    step("b", 0, 4, added=True)
    assert seen() == (3, 1, 0), "the same request, added again"
    step("b", 100, 1)
    assert seen() == (4, 1, 1), "elsewhere than its rows end, with less than a window"


def patched(at: int, data: bytes) -> Callable[[bytes], bytes]:
    """Replaces bytes of a reply, counted from its end."""
    return lambda body: bytes(body[: len(body) - at]) + data + bytes(body[len(body) - at + len(data) :])


FLOAT = struct.Struct("<f")
BLOCK = 4 * (4 + 4 + 4)
"""Bytes of four drafts, then four confidences, then four margins: the end of a reply to one request."""
ENTRY = BLOCK + 24
"""And of the record before: u16 slot, u16 status, u32 generation, u32 start and end of the window, u16 n_out."""


@pytest.mark.parametrize(
    ("n_out", "change"),
    [
        pytest.param(4, patched(BLOCK, (1000).to_bytes(4, "little")), id="id past the vocabulary"),
        pytest.param(4, patched(BLOCK, b"\xff" * 4), id="id below the vocabulary"),
        pytest.param(4, patched(BLOCK - 16, FLOAT.pack(1.0001)), id="confidence above 1"),
        pytest.param(4, patched(BLOCK - 16, FLOAT.pack(-0.0001)), id="confidence below 0"),
        pytest.param(4, patched(BLOCK - 16, FLOAT.pack(math.nan)), id="confidence NaN"),
        pytest.param(4, patched(BLOCK - 32, FLOAT.pack(math.nan)), id="margin NaN"),
        pytest.param(4, patched(BLOCK - 32, FLOAT.pack(math.inf)), id="margin infinite"),
        pytest.param(2, patched(BLOCK - 8, b"\x01"), id="a draft behind those asked for"),
        pytest.param(4, patched(ENTRY, b"\x07"), id="another slot"),
        pytest.param(4, patched(ENTRY - 2, b"\x63"), id="unknown status"),
        pytest.param(4, patched(ENTRY - 4, b"\x63"), id="another generation"),
        pytest.param(4, patched(ENTRY - 8, b"\x63"), id="a window that starts too late"),
        pytest.param(4, patched(ENTRY - 12, b"\x63"), id="a window that ends elsewhere"),
        pytest.param(4, patched(ENTRY - 16, b"\x03"), id="fewer drafts than asked for"),
    ],
)
def test_a_value_that_no_reply_may_have_fails_the_round_and_is_named(
    n_out: int, change: Callable[[bytes], bytes]
) -> None:
    rig = Rig()
    rig.connect()
    assert rig.step(10).ok.all()
    transport = rig.wire.connections[0]
    transport.change = change
    result = rig.step(1, n_out=n_out)
    assert result.reason == "bad_reply"
    assert not result.drafts.any()
    assert rig.counters()["fallback_bad_reply"] == 1
    assert str(rig.drafter.stats()["last_bad_reply"]).startswith("step_reply")
    transport.change = bytes
    assert rig.step(1).drafts.tolist() == [rig.expected(0)]
    assert rig.counters()["resync_rows"] == FACTS.window - 1


def test_a_failed_round_leaves_nothing_of_the_round_before() -> None:
    rig = Rig()
    rig.connect()
    good = rig.step(10)
    assert good.drafts.any()
    assert good.confidences.any()
    assert good.margins.any()
    rig.wire.connections[0].kill()
    failed = rig.step(1)
    assert failed.reason == "transport_error"
    for array in (failed.drafts, failed.confidences, failed.margins, failed.ok):
        assert not array.any()


@pytest.mark.parametrize("seed", range(5))
def test_every_round_is_counted_once_and_every_failed_one_under_one_reason(seed: int) -> None:
    rig, draw = Rig(TRIP="0"), random.Random(seed)
    rounds = 300
    for _ in range(rounds):
        if rig.drafter.link.session is None and draw.random() < 0.7:
            rig.connect()
        transport = rig.wire.connections[-1] if rig.wire.connections else None
        fault = draw.choice(
            ["none", "none", "none", "silent", "kill", "garbage", "busy", "fail one", "forget"]
        )
        if transport is not None:
            transport.silent = fault == "silent"
            transport.change = (lambda body: b"garbage") if fault == "garbage" else bytes
        if transport is not None and fault == "kill":
            transport.kill()
        rig.worker.refuse_with = Status.BUSY if fault == "busy" else None
        held = rig.worker.held_slots()
        if held and fault == "fail one":
            rig.worker.fail_once(held[0])
        if held and fault == "forget":
            rig.worker.forget_slot(held[0])
        rig.step(
            *(draw.randrange(4) if len(rig.rows.get(slot, [])) < 480 else 0 for slot in range(3)),
            n_out=draw.choice([0, 4, 4]),
        )
    counters = rig.counters()
    ends = ("rounds_ok", "rounds_failed", "rounds_some_failed", "rounds_append_only")
    assert counters["rounds"] == rounds == sum(counters[name] for name in ends)
    assert min(counters[name] for name in ends) > 0, "every end was met"
    fallbacks = {name: count for name, count in counters.items() if name.startswith("fallback_") and count}
    assert counters["rounds_failed"] == sum(fallbacks.values())
    assert set(fallbacks) >= {
        "fallback_not_ready", "fallback_timeout", "fallback_transport_error", "fallback_bad_reply",
        "fallback_frame_busy",
    }  # fmt: skip


# --- the connection ---


def test_the_log_names_a_ready_worker_with_its_epoch_and_why_there_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    rig = Rig()
    rig.wire.refuse = True
    assert not rig.drafter.link.attempt()
    assert "remote DSpark worker at tcp://worker:18620: tcp://worker:18620: nobody listens" in caplog.text
    rig.wire.refuse = False
    for epoch in (1, 2):
        rig.connect()
        ready = rf"remote DSpark worker 'simulated' .*ready at tcp://worker:18620 \(.*epoch {epoch}\)"
        assert len(re.findall(ready, caplog.text)) == 1
        session = rig.drafter.link.session
        assert session is not None
        rig.drafter.link.lost(session, "as the test asks")
        ended = f"remote DSpark session {epoch} with tcp://worker:18620 ended: as the test asks"
        assert ended in caplog.text


def test_a_defect_of_the_overlay_is_logged_in_full_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    for _ in range(3):
        rig.drafter.round([None], b"")  # type: ignore[list-item]  # the defect
    told = [record for record in caplog.records if "a defect of the overlay" in record.getMessage()]
    assert [(record.levelname, record.exc_info is not None) for record in told] == [("ERROR", True)]
    assert rig.counters()["fallback_internal_error"] == 3


@pytest.mark.parametrize("name", ["identity", "markov_identity"])
def test_a_worker_with_another_digest_disables_the_remote_and_the_log_has_both(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    shape, other = rig.worker.shape, b"\x5a" * 32
    ours = getattr(shape, name).hex()
    others = {
        "identity": replace(shape, identity=other),
        "markov_identity": replace(shape, markov_identity=other),
    }
    rig.worker.shape = others[name]
    rig.drafter.link.attempt()
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert told.getMessage().startswith("remote DSpark disabled for this engine run: ")
    assert f"hello.{name}" in told.getMessage()
    assert ours in told.getMessage()
    assert "5a" * 32 in told.getMessage()
    assert rig.step(1).reason == "disabled"
    assert rig.counters()["fallback_disabled"] == 1


@pytest.mark.parametrize("policy", ["capacity", "resilience", "shadow"])
def test_the_worker_learns_the_policy(policy: str) -> None:
    rig = Rig(POLICY=policy)
    rig.connect()
    _, hello = decode_request(rig.wire.connections[0].requests[0])
    assert isinstance(hello, Hello)
    assert hello.policy is Policy[policy.upper()]


def test_attempts_to_connect_are_as_far_apart_as_the_settings_say() -> None:
    rig = Rig(RETRY_MS="100", RETRY_MAX_MS="400")
    rig.wire.refuse = True
    pauses_ms = [rig.drafter.link.turn() / 1e6 for _ in range(5)]
    for pause_ms, nominal_ms in zip(pauses_ms, (100, 200, 400, 400, 400), strict=True):
        assert 0.8 * nominal_ms <= pause_ms <= min(1.2 * nominal_ms, 400)
    assert rig.counters()["connect_failures"] == 5


def test_an_attempt_to_connect_gets_its_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(CONNECT_TIMEOUT_MS="12.5", TIMEOUT_MS="3")
    deadlines = []
    connect = SimulatedWire.connect

    def spy(self: SimulatedWire, endpoint: str, *, deadline_ns: int, **more: Any) -> Any:
        deadlines.append(deadline_ns)
        return connect(self, endpoint, deadline_ns=deadline_ns, **more)

    monkeypatch.setattr(rig.drafter.link, "_connect", spy.__get__(rig.wire))
    rig.connect()
    assert deadlines == [12_500_000]


# --- memory and figures ---


def test_the_stats_say_which_engine_this_is_and_what_it_was_asked_for() -> None:
    rig = Rig(POLICY="shadow", SHADOW_USE="remote", ON_FAIL="raise", TIMEOUT_MS="12.5")
    rig.connect()
    _, hello = decode_request(rig.wire.connections[0].requests[0])
    assert isinstance(hello, Hello)
    expected = {
        "engine_id": hello.engine_id.hex(),
        "endpoint": "tcp://worker:18620",
        "policy": "shadow",
        "shadow_use": "remote",
        "on_fail": "raise",
        "timeout_ms": 12.5,
    }
    assert {name: rig.drafter.stats()[name] for name in expected} == expected
    assert Rig().drafter.engine_id != rig.drafter.engine_id, "one of its own for every engine"


@pytest.mark.parametrize("flags", [HelloFlag(0), HelloFlag.CONFIDENCE, HelloFlag.FAKE_DRAFTS])
def test_the_stats_tell_made_up_drafts_and_confidences_from_real_ones(
    flags: HelloFlag, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_hello = SimulatedWorker._hello

    def flagged(self: SimulatedWorker, head: Envelope, hello: Hello) -> HelloReply:
        reply = whole_hello(self, head, hello)
        assert isinstance(reply, HelloReply)
        return replace(reply, flags=flags)

    monkeypatch.setattr(SimulatedWorker, "_hello", flagged)
    rig = Rig(POLICY="shadow")
    rig.connect()
    worker = rig.drafter.stats()["worker"]
    assert isinstance(worker, dict)
    assert worker["confidence"] is (flags is HelloFlag.CONFIDENCE)
    assert worker["fake_drafts"] is (flags is HelloFlag.FAKE_DRAFTS)


def test_the_ring_holds_what_a_window_needs_or_what_the_setting_says() -> None:
    windowed = make_core(make_settings(RING_ROWS="77"), FACTS)
    assert windowed.ring.ring_rows == ring_rows_needed(6, 4, 1) == 6 + 5
    assert windowed.ring.nbytes == 3 * 11 * FACTS.row_bytes
    full = Rig(FULL_ATTENTION, RING_ROWS="77").drafter.stats()["rank0_buffers"]
    assert full == {"ring_bytes": 3 * 77 * FACTS.row_bytes, "ring_rows": 77}


def test_a_round_sends_no_more_bytes_of_rows_than_the_setting_says() -> None:
    rig = Rig(FULL_ATTENTION, ROUND_BYTES=str(10 * FULL_ATTENTION.row_bytes))
    rig.step(35)
    rig.connect()
    sent = []
    for _ in range(6):
        before = rig.counters()["rows_sent"]
        result = rig.step(1)
        sent.append(rig.counters()["rows_sent"] - before)
        if result.ok.all():
            break
    assert max(sent) == 10
    assert sum(sent) == len(rig.rows[0])
    assert rig.counters()["req_resync_pending"] == len(sent) - 1 > 2


@pytest.mark.parametrize(("every", "rounds"), [("0", []), ("1", [1, 2, 3, 4, 5, 6, 7]), ("3", [3, 6])])
def test_figures_are_handed_out_every_so_many_rounds(
    every: str, rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[int] = []
    monkeypatch.setattr(
        Reporter, "post", lambda self, snapshot, **_: posted.append(snapshot["counters"]["rounds"])
    )
    rig = Rig(LOG_EVERY=every)
    for _ in range(7):
        rig.step(1)
    assert posted == rounds
