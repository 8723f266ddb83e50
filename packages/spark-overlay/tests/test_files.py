"""Files that operators name: nothing waits, nothing is half there, and nothing is left beside them."""

import errno
import os
import stat
from pathlib import Path

import pytest
from spark_overlay.files import open_plain, publish, read_plain


def test_a_larger_file_is_told_by_one_byte_more(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_plain(path, 5) == b"12345"
    assert read_plain(path, 3) == b"1234"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "missing", "NUL byte"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = {"pipe": tmp_path / "pipe", "device": Path("/dev/zero"), "folder": tmp_path}.get(
        kind, tmp_path / "a\0b" if kind == "NUL byte" else tmp_path / "none"
    )
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match=r"directory|regular file|NUL byte"):
        open_plain(path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_file_is_replaced_whole_with_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    publish(path, b"new", mode=0o604, synced=True)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o604)
    before = os.umask(0o027)
    try:
        publish(tmp_path / "b", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_file_that_is_there_stays_where_it_must_not_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(FileExistsError):
        publish(tmp_path / "a", b"new", over=False)
    publish(tmp_path / "b", b"new", over=False)
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_no_part_of_a_file_is_left_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        publish(tmp_path / "a", b"new", synced=True)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize("name", ["", "none/a", "n" * 300])
def test_a_place_that_cannot_be_is_an_os_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=r"directory|too long"):
        publish(tmp_path / name if name else Path(), b"x")
    assert os.listdir(tmp_path) == []


def test_the_longest_name_that_a_folder_takes_can_be_written(tmp_path: Path) -> None:
    publish(tmp_path / ("n" * 255), b"x")
    publish(tmp_path / ("\U0001f642" * 63), b"x")
    assert sorted(os.listdir(tmp_path)) == ["n" * 255, "\U0001f642" * 63]
