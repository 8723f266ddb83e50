"""SIGTERM and Ctrl-C end a process wherever it waits."""

import signal
import subprocess
import threading
from pathlib import Path

import pytest
from ofl.client import connect
from ofl.echo import SERVICE
from transport_backends import only_on
from transport_harness import Harness, freeze, said, tell, thaw
from transport_times import Elapsed, eventually, scaled, soon, span_ns

ENDS_S = 3.0
"""From the signal to the end of the process: the longest sleep in the library is 0.2 s, the rest is Python's exit."""

CALLS = ["connect", "submit", "wait", "next_event", "idle"]
WAITS_FOR_A_SERVER = ("submit", "wait", "settled")


def inside(harness: Harness, call: str, *more: str) -> "subprocess.Popen[str]":
    """A process that sleeps inside the call, with a peer that does not answer."""
    if call == "connect":
        _, endpoint = harness.listener()  # never accepts
    elif call in ("next_event", "idle"):
        endpoint = harness.backend.fresh()
    else:
        server, endpoint = harness.served_process()
    process = harness.peer_process("waits", endpoint, call, *more)
    if call in WAITS_FOR_A_SERVER:
        assert said(process, "connected") == ""
        if call != "wait":
            freeze(server)
        tell(process, "go")
    elif call == "idle":
        reader = harness.peer_process(
            "client", said(process, "listening on "), "hoarding", str(span_ns(60)), "1"
        )
        assert said(reader, "connected") == ""
        tell(reader, "go")  # it asks for one reply, and stops
    assert said(process, "inside") == ""

    def sleeps() -> bool:
        state = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "S"

    eventually(sleeps, "the process sleeps in the call")
    return process


def ends_by(process: "subprocess.Popen[str]", number: signal.Signals, status: int) -> bool:
    """Whether the process ends soon after the signal, as it should."""
    process.send_signal(number)
    with Elapsed() as elapsed:
        assert process.wait(scaled(20)) == status
    return elapsed.seconds < scaled(ENDS_S)


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_is_a_keyboard_interrupt(harness: Harness, call: str) -> None:
    # -SIGINT is how Python ends for a KeyboardInterrupt
    assert ends_by(inside(harness, call), signal.SIGINT, -signal.SIGINT)


@pytest.mark.parametrize("call", CALLS)
def test_sigterm_ends_the_process(harness: Harness, call: str) -> None:
    assert ends_by(inside(harness, call), signal.SIGTERM, -signal.SIGTERM)


@pytest.mark.parametrize("call", CALLS)
def test_a_handler_of_sigterm_runs_and_may_raise(harness: Harness, call: str) -> None:
    assert ends_by(inside(harness, call, "catch"), signal.SIGTERM, 7)


@pytest.mark.parametrize("call", CALLS)
def test_a_process_that_was_stopped_and_goes_on_still_hears_ctrl_c(harness: Harness, call: str) -> None:
    process = inside(harness, call)
    freeze(process)
    thaw(process)
    assert ends_by(process, signal.SIGINT, -signal.SIGINT)


@only_on(lambda backend: backend.one_sided)  # elsewhere a cancel settles the call
@pytest.mark.parametrize("more", [(), ("catch",)], ids=["default", "catch"])
def test_signals_end_a_process_that_waits_for_a_quarantine(harness: Harness, more: tuple[str, ...]) -> None:
    assert ends_by(inside(harness, "settled", *more), signal.SIGINT, -signal.SIGINT)
    assert ends_by(inside(harness, "settled", *more), signal.SIGTERM, 7 if more else -signal.SIGTERM)


class Enough(Exception):
    """What a signal handler raises."""


def test_handlers_run_while_an_attempt_to_connect_goes_on_and_end_it_by_raising(harness: Harness) -> None:
    listener, endpoint = harness.listener()  # never answers
    runs: list[None] = []

    def handle(*_: object) -> None:
        runs.append(None)
        if len(runs) == 6:
            raise Enough

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(Enough):
            connect(
                endpoint,
                service=SERVICE,
                version_min=1,
                version_max=1,
                max_frame_bytes=1024,
                deadline_ns=soon(),
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    eventually(lambda: all(one.name != "ofl-connect" for one in threading.enumerate()), "the attempt ends")
    listener.accept()[0].close()
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):  # no attempt but that one
        listener.accept()
