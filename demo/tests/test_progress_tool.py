"""`tools/progress.py` hands a signal on once, waits for the command, and says so by its status."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "progress.py"
COMMAND = (
    "import signal, sys, time; signal.signal({number}, lambda *_: (print('told', flush=True), time.sleep(0.3), "
    "sys.exit(1))); print('here', flush=True); signal.pause()"
)


def wait_for(log: Path, word: str) -> None:
    with subprocess.Popen(["tail", "-n", "+1", "-F", str(log)], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert any(line.strip() == word for line in tail.stdout)
        tail.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_is_waited_for_and_the_status_says_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "log"
    log.touch()
    command = [sys.executable, "-c", COMMAND.format(number=number.value)]
    with subprocess.Popen(
        [sys.executable, TOOL, "--log", log, "--title", "t", "--", *command],
        stderr=subprocess.PIPE,
        text=True,
    ) as tool:
        assert tool.stderr is not None
        wait_for(log, "here")
        tool.send_signal(number)
        wait_for(log, "told")
        tool.send_signal(number)
        assert tool.wait(20) == 128 + number
        assert "Traceback" not in tool.stderr.read()


def test_a_shell_that_is_ended_takes_the_command_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    code = COMMAND.format(number=signal.SIGTERM.value)
    script = '"$0" "$1" --log "$2" --title t -- "$0" -c "$3"; exit 9'
    with subprocess.Popen(["sh", "-c", script, sys.executable, str(TOOL), str(log), code]) as shell:
        wait_for(log, "here")
        shell.terminate()
        wait_for(log, "told")


def test_the_commands_own_status_and_the_end_of_its_log_are_shown(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('the reason'); raise SystemExit(7)"]
    done = subprocess.run(
        [sys.executable, TOOL, "--log", tmp_path / "log", "--title", "t", "--", *command],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, "the reason" in done.stderr) == (7, True)
