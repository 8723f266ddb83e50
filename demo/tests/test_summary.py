"""The figures reach the file that was named, or one sentence says why not."""

import json
import os
from pathlib import Path

import pytest

from demo.processes import DemoError
from demo.summary import Summary, write

SUMMARY = Summary({"text_equal": True}, [], passed=True)


def test_the_figures_are_written_as_json(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text("something longer than the figures that was there before" * 10)
    write(SUMMARY, file)
    assert json.loads(file.read_text()) == {"text_equal": True}


def test_a_full_disk_is_one_sentence() -> None:
    with pytest.raises(DemoError, match=r"--json: /dev/full cannot be written: No space left on device\."):
        write(SUMMARY, Path("/dev/full"))


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(DemoError, match=r"--json: .*pipe cannot be written"):
        write(SUMMARY, pipe)
