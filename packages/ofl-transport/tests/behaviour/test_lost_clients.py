"""A client that is killed or stopped, at every step, is a Disconnected event in time, and the others are served on."""

import json
import os
import signal

import pytest
from ofl.interface import Connected, Disconnected, Request
from ofl.server import Server
from transport_harness import Harness, said, tell
from transport_times import Elapsed, eventually, scaled, soon, span_ns

SLACK_S = 2.0
"""What a busy machine may add."""

LARGE = 1 << 28
KILLED = "closed the connection"
STOPPED = "no sign of life"


def taken(server: Server, kind: type) -> object:
    """The next event, which must be of this kind."""
    event = server.next_event(deadline_ns=soon())
    assert isinstance(event, kind), event
    return event


@pytest.mark.parametrize(
    ("number", "clause"), [(signal.SIGKILL, KILLED), (signal.SIGSTOP, STOPPED)], ids=["killed", "stopped"]
)
@pytest.mark.parametrize("step", ["idle", "held"])
def test_a_client_between_or_within_calls(
    harness: Harness, step: str, number: signal.Signals, clause: str
) -> None:
    server, endpoint = harness.listening()
    process = harness.peer_process("client", endpoint, step, str(span_ns(0.5)))
    assert said(process, "connected") == ""
    taken(server, Connected)
    if step == "held":
        tell(process, "go")
        request = taken(server, Request)
    process.send_signal(number)
    with Elapsed() as elapsed:
        gone = taken(server, Disconnected)
    assert isinstance(gone, Disconnected)
    # The kernel of a process that is killed while a heartbeat lies unread in its socket says so with a reset.
    reset = number == signal.SIGKILL and gone.reason == "the connection was reset"
    assert reset or clause in gone.reason
    assert elapsed.seconds < scaled(SLACK_S + (0.5 if number == signal.SIGSTOP else 0))
    assert server.counters()["lost"] == (number == signal.SIGSTOP)
    if step == "held":
        assert isinstance(request, Request)
        assert server.reply(request.connection, request.sequence, [b"too late"]) is False


@pytest.mark.parametrize(
    ("number", "clause"), [(signal.SIGKILL, KILLED), (signal.SIGSTOP, STOPPED)], ids=["killed", "stopped"]
)
def test_a_client_within_a_request(harness: Harness, number: signal.Signals, clause: str) -> None:
    server, endpoint = harness.listening(max_frame_bytes=LARGE)
    while True:  # until the signal was in time: the whole request may have been quicker
        process = harness.peer_process("client", endpoint, "sending", str(span_ns(0.5)), str(LARGE))
        assert said(process, "connected") == ""
        taken(server, Connected)
        before = server.counters()
        tell(process, "go")
        while server.counters()["bytes_in"] < before["bytes_in"] + 100_000:
            pass
        process.send_signal(number)
        if server.counters()["requests"] == before["requests"]:
            break
        process.kill()
        while not isinstance(server.next_event(deadline_ns=soon()), Disconnected):
            pass
    with Elapsed() as elapsed:
        event = server.next_event(deadline_ns=soon())
    assert isinstance(event, Disconnected), "a part of a request was handed out"
    assert clause in event.reason or "reset" in event.reason
    assert elapsed.seconds < scaled(SLACK_S + (0.5 if number == signal.SIGSTOP else 0))
    assert server.counters()["bytes_in"] < before["bytes_in"] + LARGE


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_client_within_a_reply_costs_the_others_nothing(harness: Harness, number: signal.Signals) -> None:
    server, endpoint = harness.served_process()
    with harness.busy_client(endpoint) as served:
        arguments = ("receiving", str(span_ns(0.5)), str(int(number)))
        process = harness.peer_process("client", endpoint, *arguments)
        assert said(process, "connected") == ""
        tell(process, "go")
        assert said(process, "begun") == ""
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSIGNALED(status) or os.WIFSTOPPED(status)
        before = served()
        eventually(lambda: served() > before + 20, "the other client is served")
        counters = harness.client(endpoint)

        def disconnects() -> int:
            reply: int = json.loads(counters.call([b"!counters"], deadline_ns=soon()))["disconnects"]
            return reply

        eventually(lambda: disconnects() == 1, "the server has seen the end of it", seconds=0.5 + SLACK_S)
    assert server.poll() is None
