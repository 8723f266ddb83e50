"""The connection is kept up off the round's path, and a final no is final."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from ofl.contract.dspark_v1 import (
    Envelope,
    HelloFlag,
    HelloReply,
    Kind,
    Op,
    Policy,
    Refused,
    Shape,
    Status,
    decode_request,
    encode_reply,
    peek,
)
from small_shape import SMALL_SHAPE as SHAPE
from spark_overlay.backoff import Backoff
from spark_overlay.greeting import LinkOptions
from spark_overlay.link import Link
from spark_overlay.simulation.transport import SimulatedTransport, SimulatedWire
from spark_overlay.simulation.worker import SimulatedWorker

DEADLINE_S = 20.0
"""For events that come at once unless something is broken."""


def options(**changes: object) -> LinkOptions:
    made = LinkOptions("tcp://worker:1", Policy.CAPACITY, SHAPE, b"e" * 16, 10**9, 10**6, 10**7)
    return replace(made, **changes)  # type: ignore[arg-type]  # names are checked by replace


def make_link(wire: SimulatedWire, clock: list[int] | None = None, **changes: object) -> Link:
    now = clock if clock is not None else [0]
    return Link(options(**changes), wire.connect, lambda: now[0], draw=lambda: 0.5)


def test_delays_double_from_the_first_to_the_last_with_bounded_jitter() -> None:
    steady = Backoff(1000, 30_000, lambda: 0.5)
    assert [steady.next_ns() for _ in range(7)] == [1000, 2000, 4000, 8000, 16000, 30000, 30000]
    steady.reset()
    assert steady.next_ns() == 1000
    low, high = Backoff(1000, 30_000, lambda: 0.0), Backoff(1000, 30_000, lambda: 1.0)
    assert [low.next_ns() for _ in range(3)] == [800, 1600, 3200]
    assert [high.next_ns() for _ in range(7)][:3] == [1200, 2400, 4800]
    assert high.next_ns() == 30_000


def test_an_attempt_publishes_a_session_and_each_connection_has_a_higher_epoch() -> None:
    link = make_link(SimulatedWire(SimulatedWorker(SHAPE).answer))
    assert link.session is None
    assert link.attempt()
    first = link.session
    assert first is not None
    assert first.hello.worker_name == "simulated"
    link.lost(first, "the test says so")
    assert link.session is None
    assert first.transport.alive is False
    assert link.attempt()
    assert link.session is not None
    assert link.session.epoch > first.epoch
    assert (link.counters.hellos, link.counters.disconnects, link.counters.connect_failures) == (2, 1, 0)


def test_a_lost_session_is_logged_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    link = make_link(SimulatedWire(SimulatedWorker(SHAPE).answer))
    link.attempt()
    session = link.session
    assert session is not None
    link.lost(session, "as the test says")
    link.lost(session, "as the test says")
    assert caplog.text.count("as the test says") == 1


def test_losing_a_session_that_was_replaced_changes_nothing() -> None:
    link = make_link(SimulatedWire(SimulatedWorker(SHAPE).answer))
    link.attempt()
    old = link.session
    assert old is not None
    link.lost(old, "first")
    link.attempt()
    new = link.session
    link.lost(old, "again")
    assert link.session is new
    assert link.counters.disconnects == 1


def test_nobody_listening_is_tried_again_and_counted() -> None:
    wire = SimulatedWire(SimulatedWorker(SHAPE).answer, refuse=True)
    link = make_link(wire)
    assert not link.attempt()
    assert link.counters.connect_failures == 1
    assert "nobody listens" in link.last_failure
    wire.refuse = False
    assert link.attempt()


def test_an_unforeseen_error_costs_one_attempt_and_not_the_connecting_thread() -> None:
    wire = SimulatedWire(SimulatedWorker(SHAPE).answer)
    broken = [ValueError("first"), AssertionError("second")]

    def connect(endpoint: str, **arguments: Any) -> Any:
        if broken:
            raise broken.pop(0)
        return wire.connect(endpoint, **arguments)

    link = Link(options(), connect, lambda: 0, draw=lambda: 0.5)
    link.start()
    try:
        assert link.wait_ready(DEADLINE_S)
        assert link.counters.connect_failures == 2
        assert "a defect of the overlay: AssertionError: second" in link.last_failure
    finally:
        link.close()


@pytest.mark.parametrize(
    ("field", "shape"),
    [
        ("identity", replace(SHAPE, identity=b"x" * 32)),
        ("vocabulary", replace(SHAPE, vocabulary=999)),
        ("window", replace(SHAPE, window=5)),
        ("block_length", replace(SHAPE, block_length=2)),
        ("row_elements", replace(SHAPE, row_elements=4)),
    ],
    ids=["identity", "vocabulary", "window", "block_length", "row_elements"],
)
def test_a_worker_of_another_shape_disables_the_remote_and_both_sides_are_logged(
    field: str, shape: Shape, caplog: pytest.LogCaptureFixture
) -> None:
    worker = SimulatedWorker(shape)
    wire = SimulatedWire(worker.answer)
    link = make_link(wire)
    assert link.attempt(), "a final no ends the attempts"
    assert f"hello.{field}" in link.disabled
    assert link.session is None
    assert wire.connections[0].closed
    assert SHAPE.identity.hex() in caplog.text
    assert worker.shape.identity.hex() in caplog.text


def test_a_worker_that_says_yes_to_another_shape_is_not_believed() -> None:
    def lie(body: bytes) -> bytes:
        head = peek(body, Kind.REQUEST)
        _, request = decode_request(body)
        reply = HelloReply("liar", 1, HelloFlag.CONFIDENCE, replace(SHAPE, vocabulary=5))
        return b"".join(encode_reply(Envelope(Op.HELLO, head.epoch, head.round), reply, request))

    link = make_link(SimulatedWire(lie))
    assert link.attempt()
    assert "hello.vocabulary" in link.disabled


@pytest.mark.parametrize(
    ("status", "final"),
    [
        (Status.BUSY, False),
        (Status.DRAINING, False),
        (Status.STALE_EPOCH, False),
        (Status.POLICY, True),
        (Status.VERSION, True),
    ],
)
def test_a_refusal_is_final_only_where_this_configuration_can_never_work(status: Status, final: bool) -> None:
    def refuse(body: bytes) -> bytes:
        head = peek(body, Kind.REQUEST)
        envelope = Envelope(Op.HELLO, head.epoch, head.round, status)
        return b"".join(encode_reply(envelope, Refused(Op.HELLO, status, "hello", "no"), None))

    link = make_link(SimulatedWire(refuse))
    assert link.attempt() is final
    assert bool(link.disabled) is final
    assert status.name in (link.disabled or link.last_failure)


def test_what_a_worker_says_begins_no_line_and_no_control_sequence_in_our_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(body: bytes) -> bytes:
        head = peek(body, Kind.REQUEST)
        said = Refused(Op.HELLO, Status.POLICY, "hello\r", "no\nERROR all is lost \x1b[2J")
        return b"".join(encode_reply(Envelope(Op.HELLO, head.epoch, head.round, Status.POLICY), said, None))

    link = make_link(SimulatedWire(refuse))
    assert link.attempt()
    assert "hello\ufffd: no\ufffdERROR all is lost \ufffd[2J" in link.disabled
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage().isprintable()


def test_garbage_for_a_hello_is_a_failure_like_any_other() -> None:
    wire = SimulatedWire(lambda body: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    link = make_link(wire)
    assert not link.attempt()
    assert not link.disabled
    assert link.counters.connect_failures == 1
    assert wire.connections[0].closed


def test_a_connection_too_small_for_a_round_disables_the_remote() -> None:
    link = make_link(SimulatedWire(SimulatedWorker(SHAPE).answer, max_frame_bytes=64))
    assert link.attempt()
    assert "messages of 64 bytes" in link.disabled


def test_a_connection_that_died_while_idle_is_noticed_and_replaced() -> None:
    wire = SimulatedWire(SimulatedWorker(SHAPE).answer)
    connected_again = threading.Event()

    def connect(endpoint: str, **limits: Any) -> SimulatedTransport:
        transport = wire.connect(endpoint, **limits)
        if wire.attempts == 2:
            connected_again.set()
        return transport

    link = Link(options(), connect, lambda: 0, draw=lambda: 0.5)
    link.start()
    try:
        assert link.wait_ready(DEADLINE_S)
        first = link.session
        assert first is not None
        wire.connections[0].kill()
        assert connected_again.wait(DEADLINE_S)
        assert link.wait_ready(DEADLINE_S)
        assert link.session is not None
        assert link.session.epoch > first.epoch
        assert link.counters.disconnects == 1
    finally:
        link.close()


def test_the_thread_stops_when_the_remote_is_disabled_and_waiting_ends_at_once() -> None:
    link = make_link(SimulatedWire(SimulatedWorker(replace(SHAPE, vocabulary=2)).answer))
    link.start()
    assert not link.wait_ready(DEADLINE_S)
    assert link.disabled
    link.close()


def test_close_says_goodbye_and_ends_a_thread_that_waits_to_try_again() -> None:
    wire = SimulatedWire(SimulatedWorker(SHAPE).answer)
    link = make_link(wire)
    link.attempt()
    link.close()
    assert peek(wire.connections[0].requests[-1], Kind.REQUEST).op is Op.GOODBYE
    assert wire.connections[0].closed

    nobody = SimulatedWire(SimulatedWorker(SHAPE).answer, refuse=True)
    patient = make_link(nobody, retry_ns=3600 * 10**9, retry_max_ns=3600 * 10**9)
    patient.start()
    assert not patient.wait_ready(0.0)
    patient.close()
    assert not any(thread.name == "spark-overlay-link" for thread in threading.enumerate())


def test_only_a_session_that_lived_for_a_while_is_replaced_without_a_delay() -> None:
    clock = [0]
    link = make_link(SimulatedWire(SimulatedWorker(SHAPE).answer), clock, retry_ns=1000)
    link.attempt()
    assert link.session is not None
    link.lost(link.session, "at once")
    assert link.flapped
    link.attempt()
    clock[0] += 1000
    assert link.session is not None
    link.lost(link.session, "after a while")
    assert not link.flapped


def test_close_is_not_answered_by_another_connection() -> None:
    wire = SimulatedWire(SimulatedWorker(SHAPE).answer)
    for _ in range(20):
        link = make_link(wire)
        link.start()
        assert link.wait_ready(DEADLINE_S)
        link.close()
        assert link.counters.hellos == 1
