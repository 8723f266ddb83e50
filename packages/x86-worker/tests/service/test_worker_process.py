"""A real worker process over real TCP: engines, bad peers, signals."""

import json
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engine_twin import MOCK, ShapeChanges, entry, refusal_of, right_draft, step
from mock_process import ANYWHERE, FRAME_BYTES, TIMEOUT_S, WireEngine, WorkerProcess, figures, soon
from ofl.client import connect
from ofl.contract.dspark_v1 import (
    SERVICE,
    Envelope,
    HelloReply,
    Kind,
    Op,
    Ping,
    Policy,
    Refused,
    Status,
    StepReply,
    decode_reply,
    encode_request,
    peek,
)
from ofl.endpoint import parse_endpoint
from ofl.errors import ConnectRefusedError, FrameTooLargeError


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """One worker for the tests that must leave it serving."""
    process = WorkerProcess(tmp_path_factory.mktemp("worker"), listen=[ANYWHERE, ANYWHERE])
    yield process
    if process.process.poll() is None:
        process.kill()


@pytest.fixture
def engine(worker: WorkerProcess) -> Iterator[WireEngine]:
    one = WireEngine(worker.endpoints[0])
    yield one
    one.close()


def assert_serves(engine: WireEngine) -> None:
    """A session opens and drafts exactly."""
    engine.opened()
    sent = entry(0, 0, 20, reset=True)
    reply = engine.step(sent)
    assert reply.entries[0].drafts == right_draft(sent).drafts


def assert_still_serves(worker: WorkerProcess) -> None:
    fresh = WireEngine(worker.endpoints[1])
    try:
        assert_serves(fresh)
    finally:
        fresh.close()


def raw_socket(worker: WorkerProcess) -> socket.socket:
    where = parse_endpoint(worker.endpoints[0])
    return socket.create_connection((where.host, where.port), timeout=TIMEOUT_S)


def test_the_ready_file_says_who_listens_where(worker: WorkerProcess) -> None:
    assert worker.ready["pid"] == worker.process.pid
    assert worker.ready["identity"] == MOCK.facts().identity.hex()
    assert worker.ready["kind"] == "mock"
    assert len({parse_endpoint(endpoint).port for endpoint in worker.endpoints}) == 2
    assert figures(worker.endpoints[1])["boot_nonce"] == worker.ready["boot_nonce"]


def test_rounds_over_tcp_give_exact_drafts(engine: WireEngine) -> None:
    engine.opened()
    engine.ask(step(entry(0, 0, 12, reset=True, n_out=0)))
    for position in range(12, 60, 3):
        sent = entry(0, position, 3, anchor=position)
        reply = engine.step(sent)
        assert reply.entries[0].drafts == right_draft(sent).drafts


def test_a_long_prefill_is_pipelined_and_only_the_last_part_is_awaited(engine: WireEngine) -> None:
    engine.opened()
    parts = [entry(0, 0, 10, reset=True, n_out=0)] + [entry(0, at, 10, n_out=0) for at in range(10, 200, 10)]
    calls = [(engine.submit(step(part)), part) for part in parts]
    last = entry(0, 200, 1)
    reply = engine.step(last)
    assert reply.entries[0].drafts == right_draft(last).drafts
    for (sequence, envelope), part in calls:
        body = engine.client.wait(sequence, deadline_ns=soon())
        answer = decode_reply(body, envelope, step(part), engine.shape)
        assert isinstance(answer, StepReply), answer
        assert answer.entries[0].status.name == "OK"


@pytest.mark.parametrize(
    "change",
    [
        ShapeChanges(identity=b"\x11" * 32),
        ShapeChanges(markov_identity=b"\x11" * 32),
        ShapeChanges(vocabulary=1001),
        ShapeChanges(window=9),
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_wrong_engine_learns_the_field_and_both_values(
    worker: WorkerProcess, engine: WireEngine, change: ShapeChanges
) -> None:
    ((field, value),) = change.items()
    ours = getattr(engine.shape, field)
    reply = engine.hello(**change)
    assert isinstance(reply, Refused)
    assert (reply.status, reply.field) == (Status.MISMATCH, f"hello.{field}")
    for side in (ours, value):
        assert (side.hex() if isinstance(side, bytes) else str(side)) in reply.detail
    assert_still_serves(worker)


def test_fake_drafts_are_refused_to_capacity(engine: WireEngine) -> None:
    reply = refusal_of(engine.hello(Policy.CAPACITY))
    assert (reply.status, reply.field) == (Status.POLICY, "hello.policy")


@pytest.mark.parametrize(("service", "version"), [(SERVICE, 9), ("engram", 1)])
def test_another_service_or_version_is_refused_at_connect(
    worker: WorkerProcess, service: str, version: int
) -> None:
    with pytest.raises(ConnectRefusedError) as caught:
        connect(
            worker.endpoints[0],
            service=service,
            version_min=version,
            version_max=version,
            max_frame_bytes=FRAME_BYTES,
            deadline_ns=soon(),
        )
    assert (str(version) if service == SERVICE else service) in str(caught.value)
    assert_still_serves(worker)


def test_a_message_of_another_version_is_refused_with_both(engine: WireEngine) -> None:
    wire = bytearray(b"".join(encode_request(Envelope(Op.PING, 0, 5), Ping(1))))
    struct.pack_into("<H", wire, 4, 2)
    reply = engine.client.call([wire], deadline_ns=soon())
    refused = refusal_of(decode_reply(reply, Envelope(Op.PING, 0, 5), Ping(1)))
    assert (refused.status, refused.field) == (Status.VERSION, "header.version")
    assert refused.detail == "version 2 where 1 is spoken"


def test_garbage_inside_the_transport_is_refused_and_the_connection_lives_on(engine: WireEngine) -> None:
    reply = engine.client.call([b"GET / HTTP/1.1\r\n\r\n"], deadline_ns=soon())
    head = peek(reply, Kind.REPLY)
    assert (head.op, head.status) == (Op.UNREADABLE, Status.BAD_MESSAGE)
    assert_serves(engine)


def test_a_message_over_the_sessions_frame_is_refused(engine: WireEngine) -> None:
    engine.hello(max_frame_bytes=4096)
    large = entry(0, 0, 250, reset=True)
    # The engine's own check would not let it leave, so the engine is told that the session allows more.
    engine.shape = replace(engine.shape, max_frame_bytes=FRAME_BYTES)
    assert isinstance(engine.ask(step(large)), StepReply)  # 2,088 bytes fit
    many = [entry(slot, 0, 100, reset=True) for slot in range(8)]
    reply = refusal_of(engine.ask(step(*many)))
    assert (reply.status, reply.field) == (Status.BAD_MESSAGE, "header.body_bytes")
    assert "4096" in reply.detail


def test_a_message_over_the_transports_frame_never_leaves(worker: WorkerProcess, engine: WireEngine) -> None:
    with pytest.raises(FrameTooLargeError):
        engine.client.call([bytes(FRAME_BYTES + 1)], deadline_ns=soon())
    assert_serves(engine)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 64, b"\xff" * 4096, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"OFL1" + b"\xff" * 60],
    ids=["nothing", "zeros", "ones", "http", "forged length"],
)
def test_garbage_on_the_port_ends_that_connection_only(worker: WorkerProcess, data: bytes) -> None:
    with raw_socket(worker) as peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(4096):
            pass
    assert_still_serves(worker)


def test_a_thousand_random_connections_leave_the_service_as_it_was(
    worker: WorkerProcess, engine: WireEngine
) -> None:
    assert_serves(engine)
    chance = random.Random(20)
    before = worker.open_files()
    for _ in range(1000):
        with raw_socket(worker) as peer:
            try:
                peer.sendall(chance.randbytes(chance.randrange(200)))
                if chance.random() < 0.5:
                    peer.shutdown(socket.SHUT_RDWR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the worker hung up first, as it may
    sent = entry(0, 20, 1)
    assert engine.step(sent).entries[0].drafts == right_draft(sent).drafts
    assert_still_serves(worker)
    deadline = soon()
    while worker.open_files() > before:
        assert time.monotonic_ns() < deadline, worker.open_files()
        figures(worker.endpoints[0])  # each answer means that the worker's loop has gone round


def test_two_engines_at_once_have_separate_windows(worker: WorkerProcess) -> None:
    engines = [WireEngine(endpoint).opened() for endpoint in worker.endpoints]
    try:
        for sent in (entry(0, 0, 20, reset=True), entry(0, 20, 1), entry(0, 21, 4), entry(0, 25, 2)):
            for life, engine in enumerate(engines):
                reply = engine.step(sent, life=life)
                assert reply.entries[0].drafts == right_draft(sent, life=life).drafts
    finally:
        for engine in engines:
            engine.close()


def test_a_disconnect_drops_the_session(worker: WorkerProcess) -> None:
    engine = WireEngine(worker.endpoints[0]).opened()
    name = engine.engine_id.hex()
    assert name in {session["engine_id"] for session in figures(worker.endpoints[0])["sessions"]}
    engine.close()
    deadline = soon()
    while name in {session["engine_id"] for session in figures(worker.endpoints[0])["sessions"]}:
        assert time.monotonic_ns() < deadline
    again = WireEngine(worker.endpoints[0], engine.engine_id).opened(epoch=2)
    reply = again.step(entry(0, 20, 1))
    assert reply.entries[0].status.name == "NEEDS_RESET"
    again.close()


def test_a_reconnect_takes_over_though_the_old_connection_still_stands(worker: WorkerProcess) -> None:
    old = WireEngine(worker.endpoints[0])
    new = WireEngine(worker.endpoints[1], old.engine_id)
    try:
        old.opened(epoch=1)
        assert isinstance(new.hello(epoch=2), HelloReply)
        reply = refusal_of(old.ask(step(entry(0, 0, 20, reset=True))))
        assert (reply.status, reply.field) == (Status.STALE_EPOCH, "header.epoch")
    finally:
        old.close()
        new.close()


def test_status_shows_the_worker_as_json_and_as_tables(worker: WorkerProcess, engine: WireEngine) -> None:
    engine.opened()
    command = [sys.executable, "-m", "x86_worker", "status", worker.endpoints[0]]
    found = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    answer = json.loads(found.stdout)
    assert answer["figures"]["boot_nonce"] == worker.ready["boot_nonce"]
    assert answer["ping_us"] > 0
    found = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert "sessions" in found.stdout
    assert worker.endpoints[0] in found.stdout


# --- signals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_worker_with_status_0(tmp_path: Path, number: int) -> None:
    worker = WorkerProcess(tmp_path)
    engine = WireEngine(worker.endpoints[0]).opened()
    assert worker.stop(number) == 0
    assert "stopping on signal" in worker.log
    assert not worker.ready_file.exists()
    engine.close()


def test_asking_again_and_again_to_stop_still_ends_with_status_0(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path)
    while worker.process.poll() is None:
        worker.process.send_signal(signal.SIGTERM)
    assert worker.stop() == 0


def test_rounds_that_arrived_before_sigterm_are_answered(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path, "--draft-ms", "300")
    try:
        engine = WireEngine(worker.endpoints[0]).opened()
        asked = [entry(slot, 0, 20, reset=True) for slot in range(3)]
        calls = [engine.submit(step(sent)) for sent in asked]
        # The first reply comes 300 ms after the requests left: the others have arrived and wait for their
        # turn.
        replies = [engine.client.wait(calls[0][0], deadline_ns=soon())]
        worker.process.send_signal(signal.SIGTERM)
        replies += [engine.client.wait(sequence, deadline_ns=soon()) for sequence, _ in calls[1:]]
        for body, (_, envelope), sent in zip(replies, calls, asked, strict=True):
            reply = decode_reply(body, envelope, step(sent), engine.shape)
            assert isinstance(reply, StepReply), reply
            assert reply.entries[0].drafts == right_draft(sent).drafts
        assert worker.stop() == 0
        engine.close()
    finally:
        worker.kill()
