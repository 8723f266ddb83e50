"""Who may open a session, who loses one, and what each is told."""

import json
from dataclasses import replace
from typing import Unpack

import pytest
from engine_twin import LIMITS, MOCK, EngineTwin, ShapeChanges, entry, refusal_of, shape_of, step
from ofl.contract.dspark_v1 import (
    Goodbye,
    GoodbyeReply,
    HelloFlag,
    HelloReply,
    Ping,
    PingReply,
    Policy,
    Refused,
    RowDtype,
    RowForm,
    Stats,
    StatsReply,
    Status,
    StepReply,
)
from x86_worker.mock import MockDrafter
from x86_worker.session import DrafterService, LocalError, Refusal, SessionClosed, SessionOpened

A_STEP = step(entry(0, 10, 4, reset=True))


@pytest.fixture
def service() -> DrafterService:
    return DrafterService(MockDrafter(MOCK), worker_name="w", boot_nonce=99, now_ns=0, limits=LIMITS)


def engine(
    service: DrafterService, connection: int, name: int | None = None, **changes: Unpack[ShapeChanges]
) -> EngineTwin:
    service.connected(connection)
    return EngineTwin(service, connection, connection if name is None else name, shape_of(**changes))


def test_hello_opens_a_session_and_says_what_the_worker_is(service: DrafterService) -> None:
    one = engine(service, 1)
    reply = one.hello(Policy.SHADOW)
    offered = replace(one.shape, max_slots=LIMITS.max_slots, max_frame_bytes=LIMITS.max_frame_bytes)
    assert reply == HelloReply("w", 99, HelloFlag.CONFIDENCE | HelloFlag.FAKE_DRAFTS, offered)
    assert one.answer.events == (SessionOpened(1, one.engine_id.hex(), 1, Policy.SHADOW),)


@pytest.mark.parametrize("row_form", RowForm)
@pytest.mark.parametrize("row_dtype", RowDtype)
def test_the_worker_takes_rows_the_way_the_engine_sends_them(
    service: DrafterService, row_form: RowForm, row_dtype: RowDtype
) -> None:
    elements = MOCK.row_elements if row_form is RowForm.RAW else MOCK.projected_elements
    one = engine(service, 1, row_form=row_form, row_dtype=row_dtype, row_elements=elements)
    assert isinstance(one.hello(), HelloReply)


@pytest.mark.parametrize(
    "change",
    [
        ShapeChanges(identity=b"\x11" * 32),
        ShapeChanges(markov_identity=b"\x11" * 32),
        ShapeChanges(vocabulary=999),
        ShapeChanges(window=0),
        ShapeChanges(block_length=4),
        ShapeChanges(tap_count=3),
        ShapeChanges(row_elements=6),
        ShapeChanges(max_positions=257),
        ShapeChanges(max_frame_bytes=(1 << 16) + 1),
        ShapeChanges(max_slots=17),
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_engine_that_does_not_fit_learns_the_field_and_both_values(
    service: DrafterService, change: ShapeChanges
) -> None:
    ((field, value),) = change.items()
    one = engine(service, 1)
    ours = getattr(one.shape, field)
    if field in ("max_frame_bytes", "max_slots"):
        ours = getattr(LIMITS, field)
    reply = one.hello(**change)
    assert isinstance(reply, Refused)
    assert (reply.status, reply.field) == (Status.MISMATCH, f"hello.{field}")
    for side in (value, ours):
        assert (side.hex() if isinstance(side, bytes) else str(side)) in reply.detail
    assert reply.hello is not None
    assert reply.hello.shape.identity == MOCK.facts().identity
    assert service.sessions == ()


def test_a_target_binding_counts_only_where_both_state_it() -> None:
    bound = replace(MOCK, target_binding=b"\x22" * 32)
    service = DrafterService(MockDrafter(bound), worker_name="w", boot_nonce=1, now_ns=0, limits=LIMITS)
    assert isinstance(engine(service, 1).hello(), HelloReply)
    refused = refusal_of(engine(service, 2).hello(target_binding=b"\x33" * 32))
    assert (refused.status, refused.field) == (Status.MISMATCH, "hello.target_binding")


@pytest.mark.parametrize("policy", Policy)
def test_fake_drafts_serve_no_policy_that_would_use_them(service: DrafterService, policy: Policy) -> None:
    reply = engine(service, 1).hello(policy)
    if policy in (Policy.SHADOW, Policy.PROBE):
        assert isinstance(reply, HelloReply)
    else:
        assert isinstance(reply, Refused)
        assert (reply.status, reply.field) == (Status.POLICY, "hello.policy")
        assert policy.name in reply.detail


@pytest.mark.parametrize("policy", Policy)
def test_any_policy_serves_them_when_told_to(policy: Policy) -> None:
    service = DrafterService(
        MockDrafter(MOCK), worker_name="w", boot_nonce=1, now_ns=0, limits=LIMITS, any_policy=True
    )
    assert isinstance(engine(service, 1).hello(policy), HelloReply)


def test_a_newer_epoch_takes_the_session_over_and_the_old_connection_is_told(service: DrafterService) -> None:
    old = engine(service, 1, name=5)
    old.hello(epoch=3)
    old.step(entry(0, 10, 4, reset=True))
    new = engine(service, 2, name=5)
    assert isinstance(new.hello(epoch=4), HelloReply)
    closed, opened = new.answer.events
    assert closed == SessionClosed(1, old.engine_id.hex(), 3, "its engine opened epoch 4")
    assert isinstance(opened, SessionOpened)
    reply = refusal_of(old.ask(A_STEP))
    assert (reply.status, reply.field) == (Status.STALE_EPOCH, "header.epoch")
    assert new.step(entry(0, 14, 1)).entries[0].status.name == "NEEDS_RESET"  # the windows went with it


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_epoch_that_is_not_newer_opens_nothing(service: DrafterService, epoch: int) -> None:
    first = engine(service, 1, name=5)
    first.hello(epoch=3)
    reply = refusal_of(engine(service, 2, name=5).hello(epoch=epoch))
    assert (reply.status, reply.field) == (Status.STALE_EPOCH, "header.epoch")
    assert isinstance(first.step(entry(0, 10, 4, reset=True)), StepReply)


def test_an_engine_may_open_a_new_session_on_its_own_connection(service: DrafterService) -> None:
    one = engine(service, 1)
    one.hello()
    assert isinstance(one.hello(), HelloReply)
    assert [session.epoch for session in service.sessions] == [2]
    stale = refusal_of(one.ask(A_STEP, epoch=1))
    assert (stale.status, stale.field) == (Status.STALE_EPOCH, "header.epoch")
    unborn = refusal_of(one.ask(A_STEP, epoch=3))
    assert (unborn.status, unborn.field) == (Status.NO_SESSION, "header.epoch")


def test_a_connection_carries_one_engine_only(service: DrafterService) -> None:
    one = engine(service, 1)
    one.hello()
    reply = refusal_of(EngineTwin(service, 1, name=2).hello())
    assert (reply.status, reply.field) == (Status.BAD_MESSAGE, "hello.engine_id")
    assert len(service.sessions) == 1


def test_a_step_without_a_session_is_refused(service: DrafterService) -> None:
    reply = refusal_of(engine(service, 1).ask(A_STEP, epoch=1))
    assert (reply.status, reply.field) == (Status.NO_SESSION, "header.epoch")


def test_a_disconnect_drops_the_session_and_nobody_elses(service: DrafterService) -> None:
    one, two = engine(service, 1), engine(service, 2)
    one.hello()
    two.hello()
    events = service.disconnected(1, "the peer closed")
    assert events == (SessionClosed(1, one.engine_id.hex(), 1, "the peer closed"),)
    assert [session.engine_id for session in service.sessions] == [two.engine_id]
    assert isinstance(two.step(entry(0, 10, 4, reset=True)), StepReply)


def test_a_disconnect_of_a_superseded_connection_leaves_the_new_session(service: DrafterService) -> None:
    engine(service, 1, name=5).hello(epoch=1)
    engine(service, 2, name=5).hello(epoch=2)
    assert service.disconnected(1, "gone") == ()
    assert len(service.sessions) == 1


def test_goodbye_drops_the_session_of_its_own_connection_only(service: DrafterService) -> None:
    one, two = engine(service, 1), engine(service, 2)
    one.hello()
    two.hello()
    refused = refusal_of(one.ask(Goodbye(two.engine_id)))
    assert (refused.status, refused.field) == (Status.NO_SESSION, "goodbye.engine_id")
    assert one.ask(Goodbye(one.engine_id)) == GoodbyeReply()
    assert [session.engine_id for session in service.sessions] == [two.engine_id]


def test_sessions_are_limited_and_a_reconnecting_engine_is_not_counted_twice(service: DrafterService) -> None:
    for connection in (1, 2, 3):
        assert isinstance(engine(service, connection).hello(), HelloReply)
    full = refusal_of(engine(service, 4).hello())
    assert (full.status, full.field) == (Status.BUSY, "hello.engine_id")
    assert isinstance(engine(service, 5, name=1).hello(epoch=2), HelloReply)
    service.disconnected(2, "gone")
    assert isinstance(engine(service, 6).hello(), HelloReply)


def test_memory_for_contexts_is_reserved_at_hello() -> None:
    # 8 slots of (window 8 + block 3 + 1) rows of 8 bytes are 768 bytes; two sessions fit, a third does not.
    limits = replace(LIMITS, context_bytes_max=2 * 768)
    service = DrafterService(MockDrafter(MOCK), worker_name="w", boot_nonce=1, now_ns=0, limits=limits)
    assert isinstance(engine(service, 1).hello(), HelloReply)
    assert isinstance(engine(service, 2).hello(), HelloReply)
    full = refusal_of(engine(service, 3).hello())
    assert (full.status, full.field) == (Status.BUSY, "hello.max_slots")
    assert isinstance(engine(service, 4, name=1).hello(epoch=2), HelloReply)
    service.disconnected(2, "gone")
    assert isinstance(engine(service, 5).hello(), HelloReply)


def test_a_full_attention_session_reserves_its_longest_sequences() -> None:
    mock = replace(MOCK, window=0)
    limits = replace(LIMITS, context_bytes_max=8 * 256 * 8 - 1)
    service = DrafterService(MockDrafter(mock), worker_name="w", boot_nonce=1, now_ns=0, limits=limits)
    service.connected(1)
    full = refusal_of(EngineTwin(service, 1, shape=shape_of(mock)).hello())
    assert (full.status, full.field) == (Status.BUSY, "hello.max_slots")


def test_ping_and_stats_need_no_session(service: DrafterService) -> None:
    one = engine(service, 1)
    assert one.ask(Ping(5), epoch=0) == PingReply(5, 99)
    reply = one.ask(Stats(), epoch=0)
    assert isinstance(reply, StatsReply)
    figures = json.loads(reply.text)
    assert figures["sessions"] == []
    assert figures["counters"] == {"served_ping": 1}
    assert figures["drafter"]["fake"] is True


def test_statistics_count_by_reason(service: DrafterService) -> None:
    one = engine(service, 1)
    one.hello(Policy.CAPACITY)
    one.hello()
    one.step(entry(0, 10, 4, reset=True), entry(1, 10, 4))
    one.send(b"garbage")
    figures = json.loads(service.statistics(2_000_000_000))
    assert figures["counters"] == {
        "draft_tokens": 3,
        "entries_needs_reset": 1,
        "entries_ok": 1,
        "refused_bad_message": 1,
        "refused_policy": 1,
        "served_hello": 1,
        "served_step": 1,
        "sessions_opened": 1,
    }
    assert figures["uptime_s"] == 2.0
    assert figures["draft_us"] == {"p50": 7, "p99": 7, "max": 7, "count": 1}
    (session,) = figures["sessions"]
    assert (session["slots_held"], session["rows_held"], session["draft_tokens"]) == (1, 4, 3)
    assert session["policy"] == "shadow"


def test_draining_refuses_new_sessions_and_later_steps_but_serves_what_arrived_before(
    service: DrafterService,
) -> None:
    one = engine(service, 1)
    one.hello()
    one.now_ns = 1_000
    service.drain(now_ns=5_000)
    assert isinstance(one.step(entry(0, 10, 4, reset=True)), StepReply)
    one.now_ns = 5_000
    late = refusal_of(one.ask(A_STEP))
    assert (late.status, late.field) == (Status.DRAINING, "header.op")
    assert refusal_of(engine(service, 2).hello()).status is Status.DRAINING
    assert one.ask(Ping(1)) == PingReply(1, 99)
    assert json.loads(service.statistics(0))["draining"] is True
    assert one.ask(Goodbye(one.engine_id)) == GoodbyeReply()


def test_refusals_are_told_as_events(service: DrafterService) -> None:
    one = engine(service, 1)
    one.hello(Policy.RESILIENCE)
    (event,) = one.answer.events
    assert isinstance(event, Refusal)
    assert (event.connection, event.status, event.field) == (1, Status.POLICY, "hello.policy")


def test_misuse_by_the_caller_is_a_local_error(service: DrafterService) -> None:
    service.connected(1)
    with pytest.raises(LocalError, match="connected already"):
        service.connected(1)
    with pytest.raises(LocalError, match="not connected"):
        service.disconnected(2, "x")
    with pytest.raises(LocalError, match="not connected"):
        service.receive(2, b"", received_ns=0, now_ns=0)


def test_the_session_uses_the_engines_limits_not_the_workers(service: DrafterService) -> None:
    one = engine(service, 1, max_slots=2)
    one.hello()
    wide = replace(one.shape, max_slots=8)
    one.shape = wide
    reply = refusal_of(one.ask(step(entry(5, 10, 4, reset=True))))
    assert (reply.status, reply.field) == (Status.BAD_MESSAGE, "step_entry[0].slot")
