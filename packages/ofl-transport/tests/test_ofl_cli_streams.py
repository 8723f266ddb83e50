"""The `ofl` command where its standard streams are full, or closed before it begins."""

import subprocess
import sys

import pytest


def run(shell: str) -> "subprocess.CompletedProcess[str]":
    """A line of the shell, where $OFL is the command."""
    return subprocess.run(
        ["sh", "-c", shell.replace("$OFL", f"'{sys.executable}' -m ofl")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["probe", "probe --json"])
def test_output_that_cannot_be_written_is_one_sentence(command: str) -> None:
    ended = run(f"$OFL {command} >/dev/full")
    assert ended.stderr == "ofl: the operating system refused: No space left on device\n"
    assert ended.returncode == 1


def test_an_output_that_is_closed_is_no_fault() -> None:
    ended = run("$OFL probe >&-")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_server_that_ends_with_its_input_needs_one() -> None:
    ended = run("$OFL bench serve tcp://127.0.0.1:0 --until-eof <&-")
    assert ended.stderr == "ofl: --until-eof needs a standard input, and it is closed\n"
    assert (ended.returncode, ended.stdout) == (2, "")
