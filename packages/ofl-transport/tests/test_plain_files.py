"""Files that are named: nothing waits, nothing is read without a bound, nothing is half there or left beside them."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest
from ofl.files import (
    FileTooLongError,
    NotRegularFileError,
    open_plain,
    plain_descriptor,
    publish,
    read_bounded,
    read_plain,
)

IRREGULAR = {
    "pipe": "not a regular file",
    "device": "not a regular file",
    "socket": "not a regular file",
    "folder": "Is a directory",
}


def irregular(kind: str, folder: Path) -> Path:
    path = folder / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        path.mkdir()
    return path


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name leaves room for that of a socket, 107 bytes in all."""
    return tmp_path_factory.mktemp("s")


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_regular_file_is_refused_at_once_and_left_closed(
    short: Path, kind: str, linked: bool
) -> None:
    path = irregular(kind, short)
    if linked:
        (short / "link").symlink_to(path)
        path = short / "link"
    before = os.listdir("/proc/self/fd")
    for read in (plain_descriptor, open_plain, lambda path: read_plain(path, 9)):
        with pytest.raises(NotRegularFileError) as caught:
            read(path)
        assert (caught.value.strerror, caught.value.filename) == (IRREGULAR[kind], str(path))
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("none", errno.ENOENT),
        ("a\0b", errno.EINVAL),
        ("\ud800", errno.EILSEQ),
        ("n" * 300, errno.ENAMETOOLONG),
    ],
    ids=["missing", "NUL byte", "half a character", "long"],
)
def test_a_name_that_no_file_has_is_an_os_error(tmp_path: Path, name: str, number: int) -> None:
    for fails in (lambda path: read_plain(path, 1), plain_descriptor):
        with pytest.raises(OSError, match=r"No such|NUL byte|encoded|too long") as caught:
            fails(tmp_path / name)
        assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / name))


def test_a_link_is_followed_unless_it_must_not_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "link").symlink_to("a")
    assert read_plain(tmp_path / "link", 1) == b"a"
    assert read_plain(tmp_path / "a", 1, follow=False) == b"a"
    for read in (plain_descriptor, open_plain, lambda path, *, follow: read_plain(path, 1, follow=follow)):
        with pytest.raises(OSError, match="symbolic links") as caught:
            read(tmp_path / "link", follow=False)
        assert caught.value.errno == errno.ELOOP


def test_a_file_is_read_up_to_its_bound_and_a_longer_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_plain(path, 5) == b"12345"
    with pytest.raises(FileTooLongError) as caught:
        read_plain(path, 4)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert caught.value.strerror == "longer than 4 bytes"
    with open_plain(path) as file:
        assert file.read(1) == b"1"
        assert read_bounded(file, 4) == b"2345"


def test_no_descriptor_is_left_to_a_program_that_is_started(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    descriptor = plain_descriptor(tmp_path / "a")
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_a_file_is_replaced_whole_with_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    publish(path, b"new", mode=0o604, synced=True)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o604)
    before = os.umask(0o027)
    try:
        publish(tmp_path / "b", b"x")
        publish(tmp_path / "c", b"x", mode=0o666)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o666
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_a_file_that_is_there_stays_where_it_must_not_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(FileExistsError) as caught:
        publish(tmp_path / "a", b"new", over=False)
    assert caught.value.filename == str(tmp_path / "a")
    publish(tmp_path / "b", b"new", over=False)
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watched(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        seen.append((kind, (tmp_path / "a").exists()))

    monkeypatch.setattr(os, "fsync", watched)
    publish(tmp_path / "a", b"x", synced=True)
    assert seen == [("file", False), ("folder", True)]
    publish(tmp_path / "b", b"x")
    assert len(seen) == 2


def test_no_part_of_a_file_is_left_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        publish(tmp_path / "a", b"new", synced=True)
    assert caught.value.filename == str(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_folder_that_may_not_be_written_to_is_no_word_about_the_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(path: Path, *_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(os, "unlink", read_only)
    with pytest.raises(OSError, match="Read-only file system") as caught:
        publish(tmp_path / "a", b"x")
    assert caught.value.filename == str(tmp_path / "a")


@pytest.mark.parametrize("name", ["", "none/a", "n" * 300, "a\0b"])
def test_a_place_that_cannot_be_is_an_os_error_that_names_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name if name else Path()
    with pytest.raises(OSError, match=r"directory|too long|NUL byte") as caught:
        publish(path, b"x")
    assert caught.value.filename == str(path)
    assert os.listdir(tmp_path) == []


def test_the_longest_name_that_a_folder_takes_can_be_written(tmp_path: Path) -> None:
    publish(tmp_path / ("n" * 255), b"x")
    publish(tmp_path / ("\U0001f642" * 63), b"x")
    assert sorted(os.listdir(tmp_path)) == ["n" * 255, "\U0001f642" * 63]
