"""The loop between transport and core: replies by sequence, defects that cost one connection, the drain."""

import json
import logging
from pathlib import Path

import pytest
from drafter_twins import FailingDrafter
from engine_twin import LIMITS, MOCK, entry, right_draft, shape_of, step
from ofl.contract.dspark_v1 import (
    Envelope,
    Hello,
    Kind,
    Op,
    Policy,
    Status,
    Step,
    StepReply,
    decode_reply,
    encode_request,
    peek,
)
from ofl.interface import Connected, Disconnected, Event, Request
from transport_twin import ServerTwin
from x86_worker.log import LINES_PER_SECOND, EventLog, sentence
from x86_worker.serve import ReadyRecord, Stop, remove_ready_file, run, write_ready_file
from x86_worker.session import DrafterService, EntryFailed, Refusal, SessionClosed, SessionOpened
from x86_worker.session.events import Event as SessionEvent

HELLO = Hello(b"\1" * 16, Policy.SHADOW, shape_of())
STEP = step(entry(0, 0, 20, reset=True))


def request(connection: int, sequence: int, message: Hello | Step, received_ns: int = 0) -> Request:
    op = Op.HELLO if isinstance(message, Hello) else Op.STEP
    body = b"".join(encode_request(Envelope(op, 1, sequence), message, shape_of()))
    return Request(connection, sequence, memoryview(body), received_ns)


class Clock:
    """Nanoseconds that rise by one microsecond whenever they are read."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1000
        return self.now_ns


def run_over(server: ServerTwin, service: DrafterService | None = None) -> DrafterService:
    """Run the loop until the twin has no more events."""
    stop = Stop()
    service = service or DrafterService(
        FailingDrafter(MOCK), worker_name="w", boot_nonce=1, now_ns=0, limits=LIMITS
    )

    def idle() -> None:
        stop.signal = 15

    server.on_idle = idle
    run(server, service, stop, clock_ns=Clock())
    return service


def test_requests_are_answered_under_their_own_numbers() -> None:
    server = ServerTwin([Connected(7, 1, "peer"), request(7, 1, HELLO), request(7, 2, STEP)])
    service = run_over(server)
    reply = decode_reply(server.replies[7, 2], Envelope(Op.STEP, 1, 2), STEP, shape_of())
    assert isinstance(reply, StepReply), reply
    assert reply.entries[0].drafts == right_draft(STEP.entries[0]).drafts
    assert set(server.replies) == {(7, 1), (7, 2)}
    assert server.closed
    assert len(service.sessions) == 1


def test_a_disconnect_reaches_the_core() -> None:
    server = ServerTwin([Connected(7, 1, "peer"), request(7, 1, HELLO), Disconnected(7, "the peer closed")])
    assert run_over(server).sessions == ()


def test_what_arrived_before_the_stop_is_served_and_the_rest_refused() -> None:
    server = ServerTwin([Connected(7, 1, "peer"), request(7, 1, HELLO)])
    server.events.append(request(7, 2, STEP, received_ns=1))
    late = step(entry(1, 0, 20, reset=True))
    stop = Stop()
    service = DrafterService(FailingDrafter(MOCK), worker_name="w", boot_nonce=1, now_ns=0, limits=LIMITS)
    clock = Clock()

    def idle() -> None:
        if not stop.asked:
            stop.signal = 15
            server.events.append(request(7, 3, STEP, received_ns=2))
            server.events.append(request(7, 4, late, received_ns=1 << 60))

    server.on_idle = idle
    run(server, service, stop, clock_ns=clock)
    statuses = [peek(server.replies[7, number], Kind.REPLY).status for number in (1, 2, 3, 4)]
    assert statuses == [Status.OK, Status.OK, Status.OK, Status.DRAINING]


def test_the_drain_ends_though_requests_keep_coming() -> None:
    server = ServerTwin([Connected(7, 1, "peer"), request(7, 1, HELLO)])
    stop = Stop()
    service = DrafterService(FailingDrafter(MOCK), worker_name="w", boot_nonce=1, now_ns=0, limits=LIMITS)
    count = 0

    class Endless(ServerTwin):
        def next_event(self, *, deadline_ns: int) -> Event | None:
            nonlocal count
            count += 1
            return request(7, count, STEP, received_ns=1 << 60) if count > 2 else server.events.popleft()

    stop.signal = 15
    endless = Endless()
    run(endless, service, stop, clock_ns=Clock(), drain_ns=1_000_000)
    assert endless.closed
    assert 2 < count < 1000


def test_a_defect_of_ours_costs_the_connection_that_met_it(caplog: pytest.LogCaptureFixture) -> None:
    service = DrafterService(FailingDrafter(MOCK), worker_name="w", boot_nonce=1, now_ns=0, limits=LIMITS)
    # Connection 8 was never announced: the core calls that a misuse of ours.
    server = ServerTwin([request(8, 1, HELLO), Connected(7, 1, "peer"), request(7, 1, HELLO)])
    with caplog.at_level(logging.ERROR, logger="x86_worker"):
        logging.getLogger("x86_worker").propagate = True
        run_over(server, service)
    assert server.disconnects == [(8, "internal error of the worker")]
    assert "connection 8 is not connected" in caplog.text
    assert (7, 1) in server.replies


def test_a_reply_that_the_transport_cannot_carry_ends_the_connection() -> None:
    server = ServerTwin([Connected(7, 1, "peer"), request(7, 1, HELLO)])
    server.frame_bytes_max = 40
    run_over(server)
    ((connection, reason),) = server.disconnects
    assert connection == 7
    assert "too long" in reason


# --- the log ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (SessionOpened(1, "ab", 3, Policy.SHADOW), ["opened", "ab", "epoch 3", "shadow"]),
        (SessionClosed(1, "ab", 3, "goodbye"), ["closed", "ab", "epoch 3", "goodbye"]),
        (
            Refusal(4, Op.HELLO, Status.MISMATCH, "hello.window", "4 and 8"),
            ["connection 4", "MISMATCH", "hello.window"],
        ),
        (EntryFailed(1, "ab", 6, "out of memory"), ["slot 6", "ab", "out of memory"]),
    ],
)
def test_an_event_is_one_line_that_says_who_and_why(event: SessionEvent, words: list[str]) -> None:
    line = sentence(event)
    assert "\n" not in line
    assert all(word in line for word in words)


@pytest.mark.parametrize(
    ("policy", "level"), [(Policy.PROBE, "INFO"), (Policy.CAPACITY, "WARNING"), (None, "WARNING")]
)
def test_only_a_probes_question_is_refused_without_a_warning(
    caplog: pytest.LogCaptureFixture, policy: Policy | None, level: str
) -> None:
    logger = logging.getLogger("x86_worker.test_question")
    with caplog.at_level(logging.INFO, logger=logger.name):
        EventLog(logger).write(
            Refusal(4, Op.HELLO, Status.MISMATCH, "hello.vocabulary", "1 and 512", policy), now_ns=5
        )
    assert [record.levelname for record in caplog.records] == [level]


def test_a_flood_is_limited_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("x86_worker.test_flood")
    log = EventLog(logger)
    refusal = Refusal(4, Op.HELLO, Status.BUSY, "hello.engine_id", "full")
    with caplog.at_level(logging.INFO, logger=logger.name):
        for _ in range(1000):
            log.write(refusal, now_ns=5)
        assert len(caplog.records) == LINES_PER_SECOND
        log.write(SessionClosed(1, "ab", 3, "x"), now_ns=5)  # another kind has its own limit
        log.write(refusal, now_ns=5 + 1_000_000_000)
    assert len(caplog.records) == LINES_PER_SECOND + 2
    assert f"({1000 - LINES_PER_SECOND} more like it left out)" in caplog.records[-1].getMessage()


# --- the ready file --------------------------------------------------------------------------------------

RECORD = ReadyRecord(
    pid=1, endpoints=["tcp://127.0.0.1:5"], boot_nonce="00", identity="11", markov_identity="22",
    target_binding="33", kind="mock",
)  # fmt: skip


def test_the_ready_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    write_ready_file(path, RECORD)
    assert json.loads(path.read_text()) == vars(RECORD)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(TypeError):
        write_ready_file(path, ReadyRecord(**(vars(RECORD) | {"kind": object()})))
    assert json.loads(path.read_text()) == vars(RECORD)
    assert list(tmp_path.iterdir()) == [path]


def test_another_workers_ready_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    write_ready_file(path, RECORD)
    remove_ready_file(path)
    assert path.exists()
    path.write_text("not json")
    remove_ready_file(path)
    assert path.exists()
