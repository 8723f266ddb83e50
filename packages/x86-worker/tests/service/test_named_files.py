"""Files that are named to the worker's commands: whatever they are, one sentence at once, and nothing half written."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from x86_worker.checkpoint import CheckpointError, folder
from x86_worker.checkpoint.folder import read_json_object, read_tensors
from x86_worker.cli import main
from x86_worker.serve import remove_ready_file


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


@pytest.mark.parametrize("spoil", [os.mkfifo, lambda path: path.write_text("[]")], ids=["pipe", "list"])
def test_a_ready_file_that_is_another_thing_by_now_is_left_alone(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    spoil(tmp_path / "ready.json")
    remove_ready_file(tmp_path / "ready.json")
    assert os.listdir(tmp_path) == ["ready.json"]


def test_tensors_that_are_a_pipe_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read \(not a regular file\)"):
        read_tensors(tmp_path)


def test_a_configuration_is_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "JSON_BYTES_MAX", 4)
    (tmp_path / "a.json").write_text("{  }")
    assert read_json_object(tmp_path / "a.json") == {}
    (tmp_path / "a.json").write_text("{   }")
    with pytest.raises(CheckpointError, match=r"a\.json: has more than 4 bytes"):
        read_json_object(tmp_path / "a.json")
