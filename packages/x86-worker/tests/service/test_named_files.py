"""Files that are named to the worker's commands: whatever they are, one sentence at once, and nothing half written."""

import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from x86_worker.checkpoint import CheckpointError
from x86_worker.checkpoint.folder import read_json_object
from x86_worker.cli import main
from x86_worker.whole_file import write_whole


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_refused_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "pipe" if kind == "pipe" else Path("/dev/zero")
    command = ["doctor", "--drafter", str(tmp_path), "--no-digest", "--identity-file", str(path)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert result.output == f"Error: {path}: is not a regular file\n"


def test_json_that_is_too_deep_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match=r"a\.json: is not JSON"):
        read_json_object(tmp_path / "a.json")


def test_a_full_disk_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "x86-worker.service"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    result = CliRunner().invoke(main, ["unit", "--output", str(tmp_path)])
    assert result.exit_code == 2
    assert result.output == f"Error: --output: {tmp_path} cannot be written to: No space left on device\n"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_that_may_not_be_written_to_is_no_word_about_the_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "open", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(OSError, match="Read-only file system") as caught:
        write_whole(tmp_path / "a", "x")
    assert caught.value.filename == str(tmp_path / "a")


@pytest.mark.parametrize("name", ["", "none/a"])
def test_a_place_that_cannot_be_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name if name else Path()
    with pytest.raises(OSError, match="directory") as caught:
        write_whole(path, "x")
    assert caught.value.filename == str(path)


def test_the_longest_name_that_a_folder_takes_can_be_written(tmp_path: Path) -> None:
    write_whole(tmp_path / ("n" * 255), "x")
    assert os.listdir(tmp_path) == ["n" * 255]
