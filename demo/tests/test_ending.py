"""However the demo ends, it leaves no process behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAGE = """
import pathlib, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it, as nohup does
from demo.interruption import Interrupted, raise_on_signals
from demo.processes import Process
raise_on_signals()
child = Process("a child", ["sleep", "600"], pathlib.Path(sys.argv[1]), {})
try:
    print(child.pid, flush=True)
    time.sleep(600)
except Interrupted as interrupted:
    print("ending", flush=True)
    time.sleep(0.5)  # what follows takes its time in life too, and a second signal comes meanwhile
    child.end()
    sys.exit(interrupted.status)
"""


def gone(pid: int) -> bool:
    """Whether a process ends within a few seconds; one that init must still reap counts as ended."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def stage(tmp_path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STAGE, str(tmp_path / "log")]
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join([str(ROOT), *sys.path])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)


def test_a_demo_that_is_killed_takes_its_processes_with_it(stage: subprocess.Popen[str]) -> None:
    with stage:
        assert stage.stdout is not None
        child = int(stage.stdout.readline())
        stage.kill()
    assert gone(child)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_processes_and_a_second_one_does_not_cut_that_short(
    stage: subprocess.Popen[str], number: signal.Signals
) -> None:
    with stage:
        assert stage.stdout is not None
        child = int(stage.stdout.readline())
        stage.send_signal(number)
        assert stage.stdout.readline() == "ending\n"
        stage.send_signal(number)
        stage.send_signal(signal.SIGTERM)
        assert stage.wait(20) == 128 + number
    assert gone(child)
