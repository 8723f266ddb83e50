"""The file of observations: a line per record at once, whole lines only, and a full disk is not the engine's."""

import errno
import logging
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from observation_facts import ENGINE_FACTS
from ofl.contract.observation_v1 import Closed, Observation, Published, read_line
from ofl.observation_file import Writer


def lines(path: Path) -> list[Observation]:
    return [read_line(line) for line in path.read_bytes().splitlines(keepends=True)]


def test_each_record_is_in_the_file_when_it_is_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path, ENGINE_FACTS, lambda: 77)
    assert writer.path.name == f"observations-{'ab' * 16}-rank0.jsonl"
    assert lines(writer.path) == [Observation(0, 77, ENGINE_FACTS)]
    writer.write(Published(1, ()))
    assert lines(writer.path)[1] == Observation(1, 77, Published(1, ()))
    writer.close()
    writer.close()
    writer.write(Published(2, ()))
    assert lines(writer.path)[2:] == [Observation(2, 77, Closed(2, 0))]


def test_a_killed_process_leaves_what_it_wrote(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from observation_facts import ENGINE_FACTS; "
        "from ofl.contract.observation_v1 import Published; from ofl.observation_file import Writer; "
        "writer = Writer(Path(sys.argv[1]), ENGINE_FACTS); writer.write(Published(1, ())); os.kill(os.getpid(), 9)"
    )
    environ = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environ, check=False)
    assert done.returncode == -9
    (path,) = tmp_path.iterdir()
    assert [line.index for line in lines(path)] == [0, 1]


def test_a_file_is_never_written_over_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path, ENGINE_FACTS)
    assert writer.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        Writer(tmp_path, ENGINE_FACTS)
    other = Writer(tmp_path, replace(ENGINE_FACTS, rank=1))
    assert other.path != writer.path
    for made in (writer, other):
        made.close()


def fill(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """From now on the disk takes so many bytes of a line, or none."""
    write = os.write

    def full(file: int, data: bytes) -> int:
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:taken])

    monkeypatch.setattr(os, "write", full)


@pytest.mark.parametrize("taken", [0, 5])
def test_what_a_full_disk_does_not_take_is_counted_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, taken: int
) -> None:
    writer = Writer(tmp_path, ENGINE_FACTS, log=logging.getLogger("hooks"))
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        fill(patched, taken)
        writer.write(Published(1, ()))
        writer.write(Published(2, ()))
    writer.write(Published(3, ()))
    writer.close()
    assert [line.record for line in lines(writer.path)][1:] == [Published(3, ()), Closed(2, 2)]
    assert [line.index for line in lines(writer.path)] == [0, 1, 2]
    assert [record.name for record in caplog.records] == ["hooks"]


def test_where_half_a_line_cannot_be_taken_back_no_line_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path, ENGINE_FACTS)

    def fails(file: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        fill(patched, 5)
        patched.setattr(os, "ftruncate", fails)
        writer.write(Published(1, ()))
    writer.write(Published(2, ()))
    writer.close()
    assert writer.dropped == 3
    whole, half = writer.path.read_bytes().splitlines(keepends=True)
    assert read_line(whole).record == ENGINE_FACTS
    assert not half.endswith(b"\n")


def test_a_record_that_cannot_be_told_and_a_hook_that_failed_are_counted(tmp_path: Path) -> None:
    writer = Writer(tmp_path, ENGINE_FACTS)
    writer.write(Published(1, (5,)))  # type: ignore[arg-type]
    writer.defect(RuntimeError("planted"))
    writer.close()
    assert lines(writer.path)[-1].record == Closed(1, 2)


def test_threads_write_whole_lines_in_one_order(tmp_path: Path) -> None:
    writer = Writer(tmp_path, ENGINE_FACTS)

    def work(step: int) -> None:
        for _ in range(50):
            writer.write(Published(step, ("00" * 16,) * step))

    threads = [threading.Thread(target=work, args=(step,)) for step in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    found = lines(writer.path)
    assert [line.index for line in found] == list(range(202))
    assert found[-1].record == Closed(201, 0)
