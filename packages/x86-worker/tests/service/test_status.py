"""`status` against a service in this process, and against peers that are no worker."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from engine_twin import LIMITS, MOCK, entry, step
from mock_process import WireEngine
from ofl.contract.dspark_v1 import SERVICE, VERSION
from ofl.interface import Request
from ofl.server import Server
from rich.console import Console
from x86_worker import status
from x86_worker.cli import main
from x86_worker.mock import MockDrafter
from x86_worker.problem import Problem
from x86_worker.serve import Stop, run
from x86_worker.session import DrafterService


def listening() -> tuple[Server, str]:
    server = Server(SERVICE, version_min=VERSION, version_max=VERSION, max_frame_bytes=LIMITS.max_frame_bytes)
    return server, server.listen("tcp://127.0.0.1:0")


@contextmanager
def serving() -> Iterator[str]:
    """A worker in a thread; its endpoint."""
    server, endpoint = listening()
    service = DrafterService(
        MockDrafter(MOCK),
        worker_name="twin",
        boot_nonce=0xAB,
        now_ns=0,
        limits=LIMITS,
        transport_counters=server.counters,
    )
    stop = Stop()
    thread = threading.Thread(target=run, args=(server, service, stop))
    thread.start()
    try:
        yield endpoint
    finally:
        stop.signal = 15
        server.wake()
        thread.join(20)
        assert not thread.is_alive()


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """A server of the same service that gives the same bytes to everyone; its endpoint."""
    server, endpoint = listening()
    stopping = threading.Event()

    def loop() -> None:
        while not stopping.is_set():
            event = server.next_event(deadline_ns=1 << 62)
            if isinstance(event, Request):
                server.reply(event.connection, event.sequence, [reply])

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield endpoint
    finally:
        stopping.set()
        server.wake()
        thread.join(20)
        server.close()


def test_status_shows_the_figures_of_a_worker_with_sessions() -> None:
    with serving() as endpoint:
        engine = WireEngine(endpoint)
        engine.hello(max_frame_bytes=LIMITS.max_frame_bytes)
        engine.ask(step(entry(0, 0, 20, reset=True)))
        answer = status.ask(endpoint, timeout_s=20)
        shown = io.StringIO()
        status.show(answer, Console(file=shown, width=200))
        as_json = CliRunner().invoke(main, ["status", endpoint, "--json"])
        as_tables = CliRunner().invoke(main, ["status", endpoint])
        engine.close()
    assert answer.ping_us > 0
    assert (answer.wire, answer.authenticated) == ("tcp", False)
    assert answer.figures["sessions"][0]["rows_held"] == 12
    for words in ("twin", "draft_us", engine.engine_id.hex(), "served_step", "bytes_in", "00000000000000ab"):
        assert words in shown.getvalue()
    assert json.loads(as_json.output)["figures"]["worker_name"] == "twin"
    assert (as_json.exit_code, as_tables.exit_code) == (0, 0)


def test_a_peer_that_answers_garbage_is_one_sentence() -> None:
    with answering(b"not the contract") as endpoint:
        result = CliRunner().invoke(main, ["status", endpoint])
        with pytest.raises(Problem, match="breaks the contract: header: 16 bytes"):
            status.ask(endpoint, timeout_s=20)
    assert result.exit_code == 2
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("text", ["[1]", "{", '"x"'])
def test_figures_that_are_no_json_object_are_refused(text: str) -> None:
    with pytest.raises(Problem, match="STATS is not"):
        status.parsed("tcp://127.0.0.1:1", text)


def test_odd_figures_are_shown_as_far_as_they_go() -> None:
    shown = io.StringIO()
    answer = status.WorkerStatus(
        "tcp://127.0.0.1:1", 1.5, {"sessions": "?", "counters": [1], "limits": [1, 2]}
    )
    status.show(answer, Console(file=shown, width=120))
    assert "1, 2" in shown.getvalue()
