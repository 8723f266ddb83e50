"""Key files: how they are made, and which are refused with which words."""

import errno
import os
import re
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ofl import abi, keys
from ofl.errors import TransportError
from ofl.keys import KeyFileError, check_key, write_key
from ofl.server import Server

CPP = Path(__file__).parents[1] / "cpp"
ROOT = os.geteuid() == 0
STRANGER = 65534


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Set the umask; it is put back."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A good key file."""
    write_key(tmp_path / "key")
    return tmp_path / "key"


def made(path: Path, content: bytes = b"k" * 64, mode: int = 0o600, owner: int | None = None) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, -1)
    return path


def sentence_of(path: Path | str) -> str:
    """The refusal, or nothing."""
    try:
        check_key(path)
    except KeyFileError as error:
        return str(error)
    return ""


def test_a_new_key_is_64_hexadecimal_digits_that_only_the_owner_may_read(key: Path) -> None:
    assert re.fullmatch(rb"[0-9a-f]{64}\n", key.read_bytes())
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.stat().st_uid == os.geteuid()
    check_key(key)


def test_no_two_keys_are_alike(tmp_path: Path) -> None:
    for number in range(20):
        write_key(tmp_path / str(number))
    assert len({(tmp_path / str(number)).read_bytes() for number in range(20)}) == 20


@pytest.mark.parametrize("mask", [0, 0o077, 0o777])
def test_the_umask_changes_nothing(tmp_path: Path, umask: Callable[[int], int], mask: int) -> None:
    umask(mask)
    write_key(tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_file_or_link_is_never_overwritten(tmp_path: Path, key: Path) -> None:
    before = key.read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for path in (key, tmp_path / "link"):
        with pytest.raises(KeyFileError, match="exists and is never overwritten") as caught:
            write_key(path)
        assert f"'mv {path} {path}.old'" in str(caught.value)
    assert key.read_bytes() == before
    assert not (tmp_path / "target").exists()


def test_a_missing_folder_and_a_file_in_its_place_are_named(tmp_path: Path, key: Path) -> None:
    with pytest.raises(KeyFileError, match="has no folder") as caught:
        write_key(tmp_path / "a" / "key")
    assert f"'mkdir -p -m 700 {tmp_path / 'a'}'" in str(caught.value)
    with pytest.raises(KeyFileError, match="cannot be made: Not a directory"):
        write_key(key / "key")


def test_a_disk_that_is_full_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(KeyFileError, match="cannot be written: No space left on device"):
        write_key(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, content: write(file, content[:7]))
    write_key(tmp_path / "key")
    assert re.fullmatch(rb"[0-9a-f]{64}\n", (tmp_path / "key").read_bytes())


def test_a_file_system_without_modes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fchmod = os.fchmod
    monkeypatch.setattr(os, "fchmod", lambda file, _mode: fchmod(file, 0o777))
    with pytest.raises(KeyFileError, match="mode 0777"):
        write_key(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_key_has_32_to_1024_bytes(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "key"
    for size in (32, 64, 1024):
        assert sentence_of(made(path, b"k" * size + end)) == ""
    assert "holds 31 bytes, and a key has at least 32" in sentence_of(made(path, b"k" * 31 + end))
    for size in (1025, 1 << 20):
        assert "more than the 1024 bytes" in sentence_of(made(path, b"k" * size + end))


def test_a_key_is_not_read_through_a_pipe_that_nobody_writes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "is not a regular file" in sentence_of(tmp_path / "pipe")


@pytest.mark.parametrize("bit", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
def test_any_right_of_others_is_refused_with_its_repair(key: Path, bit: int) -> None:
    key.chmod(0o600 | bit)
    sentence = sentence_of(key)
    assert f"mode {0o600 | bit:04o}" in sentence
    assert f"'chmod 600 {key}'" in sentence


@pytest.mark.skipif(not ROOT, reason="only root can give a file away")
def test_a_key_of_a_third_user_is_refused_with_its_repair(key: Path) -> None:
    os.chown(key, STRANGER, -1)
    rule = f"belongs to user {STRANGER} and must belong to user 0"
    assert sentence_of(key) == f"key file {key} {rule}: 'chown 0 {key}' as root"


@pytest.mark.skipif(not ROOT, reason="only root can become another user and come back")
def test_a_key_that_this_user_may_not_open_is_refused_with_its_repair() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        os.chmod(folder, 0o755)
        key = made(Path(folder, "key"))
        own = made(Path(folder, "own"), owner=STRANGER)
        os.seteuid(STRANGER)
        try:
            sentence, fine = sentence_of(key), sentence_of(own)
        finally:
            os.seteuid(0)
    assert f"cannot be opened by user {STRANGER}: 'chown {STRANGER} {key}'" in sentence
    assert fine == ""


def test_a_wrong_path_is_told(tmp_path: Path) -> None:
    assert "is empty" in sentence_of("")
    assert "NUL" in sentence_of("key\0x")
    assert f"'ofl keygen {tmp_path / 'absent'}'" in sentence_of(tmp_path / "absent")


def refused_files(folder: Path) -> list[str]:
    """One file for every rule, most in names that a shell would take apart."""
    (folder / "link").symlink_to(folder / "target")
    (folder / "it's $HOME").mkdir()
    os.mkfifo(folder / "pipe", 0o600)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    files = [
        made(folder / "empty", b""),
        made(folder / "short; ls", b"k" * 31 + b"\n"),
        made(folder / "long", b"k" * 1025),
        made(folder / "newlines", b"k" * 1024 + b"\n\n"),
        made(folder / "read by it's group", mode=0o640),
        made(folder / "read by all", mode=0o4604),
        made(folder / "good") / "below",
        *(folder / name for name in ("link", "it's $HOME", "pipe", "socket", "absent", "x" * 300)),
    ]
    if ROOT:
        files.append(made(folder / "theirs", owner=STRANGER))
    return ["-absent", "/dev/zero", *map(str, files)]


def words_of_the_library(path: str) -> str:
    """What libofl.so says about a key file that a server is started with; nothing where it takes it."""
    try:
        Server("test", version_min=1, version_max=1, max_frame_bytes=1024, key_file=path).close()
    except (ValueError, TransportError) as error:
        return str(error)
    return ""


def test_the_library_refuses_the_same_files_in_the_same_words(tmp_path: Path) -> None:
    refused = refused_files(tmp_path)
    taken = [str(made(tmp_path / "fine", b"\x00\xff\n" * 11)), str(made(tmp_path / "read only", mode=0o400))]
    said = {path: words_of_the_library(path) for path in refused + taken}
    room = abi.TEXT_BYTES - 1
    assert said == {path: sentence_of(path)[:room] for path in refused + taken}
    assert all(said[path] for path in refused)
    assert not any(said[path] for path in taken)


def test_no_refusal_shows_what_a_file_holds(tmp_path: Path) -> None:
    secret = b"s3cr3t" * 5
    assert "s3cr3t" not in sentence_of(made(tmp_path / "short", secret))
    assert "s3cr3t" not in sentence_of(made(tmp_path / "open", secret * 2, mode=0o644))


def test_the_bounds_are_those_of_the_library() -> None:
    header = (CPP / "key_file.hpp").read_text()
    for name, value in (("kKeyBytesMin", keys.KEY_BYTES_MIN), ("kKeyBytesMax", keys.KEY_BYTES_MAX)):
        assert f"{name} = {value};" in header
