"""SIGTERM and Ctrl-C end a process wherever it waits."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
from transport_harness import Harness, freeze, said, tell, thaw
from transport_times import Elapsed, eventually, scaled

ENDS_S = 3.0
"""From the signal to the end of the process: the longest sleep in the library is 0.2 s, the rest is Python's exit."""

CALLS = ["connect", "submit", "wait", "next_event"]


def inside(harness: Harness, call: str, *more: str) -> "subprocess.Popen[str]":
    """A process that sleeps inside the call, with a peer that does not answer."""
    if call == "connect":
        _, endpoint = harness.listener()  # never accepts
    elif call == "next_event":
        endpoint = harness.backend.fresh()
    else:
        server, endpoint = harness.served_process()
    process = harness.peer_process("waits", endpoint, call, *more)
    if call in ("submit", "wait"):
        assert said(process, "connected") == ""
        if call == "submit":
            freeze(server)
        tell(process, "go")
    assert said(process, "inside") == ""

    def sleeps() -> bool:
        state = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "S"

    eventually(sleeps, "the process sleeps in the call")
    return process


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_is_a_keyboard_interrupt(harness: Harness, call: str) -> None:
    process = inside(harness, call)
    process.send_signal(signal.SIGINT)
    with Elapsed() as elapsed:
        assert process.wait(scaled(20)) == -signal.SIGINT  # how Python ends for a KeyboardInterrupt
    assert elapsed.seconds < scaled(ENDS_S)


@pytest.mark.parametrize("call", CALLS)
def test_sigterm_ends_the_process(harness: Harness, call: str) -> None:
    process = inside(harness, call)
    process.send_signal(signal.SIGTERM)
    with Elapsed() as elapsed:
        assert process.wait(scaled(20)) == -signal.SIGTERM
    assert elapsed.seconds < scaled(ENDS_S)


@pytest.mark.parametrize("call", CALLS)
def test_a_handler_of_sigterm_runs_and_may_raise(harness: Harness, call: str) -> None:
    process = inside(harness, call, "catch")
    process.send_signal(signal.SIGTERM)
    with Elapsed() as elapsed:
        assert process.wait(scaled(20)) == 7
    assert elapsed.seconds < scaled(ENDS_S)


@pytest.mark.parametrize("call", CALLS)
def test_a_process_that_was_stopped_and_goes_on_still_hears_ctrl_c(harness: Harness, call: str) -> None:
    process = inside(harness, call)
    freeze(process)
    time.sleep(scaled(0.05))
    thaw(process)
    process.send_signal(signal.SIGINT)
    with Elapsed() as elapsed:
        assert process.wait(scaled(20)) == -signal.SIGINT
    assert elapsed.seconds < scaled(ENDS_S)
