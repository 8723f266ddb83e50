"""A control file is obeyed only where it says one thing clearly and nobody else may write it."""

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.control import files
from spark_overlay.control.files import changed, lock_path, read_record
from spark_overlay.control.reader import FileSource, Reading
from spark_overlay.control.record import (
    DEPTH_MAX,
    REARM_MAX,
    REASON_CHARACTERS_MAX,
    RECORD_BYTES_MAX,
    ControlFileError,
    ControlRecord,
    parse_record,
)

RECORDS = st.builds(
    ControlRecord,
    state=st.sampled_from(("active", "paused")),
    rearm=st.integers(0, REARM_MAX),
    depth_max=st.none() | st.integers(0, DEPTH_MAX),
    # JSON escapes take six bytes a character, so the longest reason still fits a record.
    reason=st.text(st.characters(codec="utf-8"), max_size=REASON_CHARACTERS_MAX),
    written_at=st.floats(0, 1e12),
    written_by_uid=st.integers(0, 2**32 - 1),
)


@given(RECORDS)
def test_a_record_reads_back_as_it_was_written(record: ControlRecord) -> None:
    assert parse_record(record.encoded()) == record
    assert len(record.encoded()) <= RECORD_BYTES_MAX


@given(st.binary(max_size=200) | st.from_regex(rb'\{"[a-z_]{1,9}": .{0,40}\}', fullmatch=True))
def test_any_bytes_are_a_record_or_one_sentence(data: bytes) -> None:
    said = ""
    try:
        parse_record(data)
    except ControlFileError as error:
        said = str(error)
    assert said.isprintable()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"state": "off"}, "state is 'off': Input should be 'active' or 'paused'"),
        ({"rearm": -1}, "rearm is -1"),
        ({"rearm": True}, "rearm is True"),
        ({"rearm": 1.0}, "rearm is 1.0"),
        ({"rearm": 2**53}, "rearm is 9007199254740992"),
        ({"depth_max": DEPTH_MAX + 1}, "depth_max is 1025"),
        ({"depth_max": "3"}, "depth_max is '3'"),
        ({"reason": None}, "reason is None"),
        ({"reason": "x" * (REASON_CHARACTERS_MAX + 1)}, "reason is 'xxx"),
        ({"written_at": float("nan")}, "written_at is nan"),
        ({"pause": True}, "pause is no field of a control record"),
        ({"schema_version": 2}, "schema_version is 2, and this version reads 1"),
        ({"schema_version": True}, "schema_version is True"),
        ({"schema_version": 1.0}, "schema_version is 1.0"),
        ({"schema_version": None}, "schema_version is None"),
    ],
)
def test_a_field_that_cannot_be_is_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ControlFileError) as caught:
        parse_record(json.dumps({"schema_version": 1} | values).encode())
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"schema_version": 1, "state": "active", "state": "paused"}', "a name stands twice"),
        (b"[" * 5_000, "is not JSON"),
        (b" " * (RECORD_BYTES_MAX + 1), "holds more than the 16384 bytes"),
        (b'{"schema_version": 1, "reason": "\xff"}', "is not JSON"),
    ],
)
def test_bytes_that_are_no_record_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(ControlFileError, match=said):
        parse_record(data)


# --- the file ---


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.json"


def test_a_missing_file_says_active_and_nothing_else(path: Path) -> None:
    assert read_record(path) is None
    assert FileSource(path).poll() == Reading(ControlRecord(), present=False)


def test_what_is_written_is_readable_by_all_and_writable_by_its_owner_alone(path: Path) -> None:
    before = os.umask(0o077)
    try:
        changed(path, lambda record: record.changed(state="paused"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert sorted(entry.name for entry in path.parent.iterdir()) == [lock_path(path).name, path.name]


@pytest.mark.parametrize(
    ("mode", "said"),
    [(0o664, "has mode 0664, which lets other users write it"), (0o646, "has mode 0646"), (0o600, "")],
)
def test_a_file_that_others_may_write_is_not_obeyed(path: Path, mode: int, said: str) -> None:
    changed(path, lambda record: record)
    path.chmod(mode)
    reading = FileSource(path).poll()
    assert reading is not None
    assert reading.problem.startswith(said)
    assert (reading.record is None) == bool(said)


def test_a_file_of_another_user_is_not_obeyed_unless_root_owns_it(path: Path) -> None:
    changed(path, lambda record: record)
    facts = list(path.stat())
    for user, fine in ((os.geteuid(), True), (0, True), (os.geteuid() + 4_000, False)):
        facts[stat.ST_UID] = user
        if fine:
            files.judge(os.stat_result(facts))
            continue
        with pytest.raises(ControlFileError, match=f"belongs to user {user} and must belong to"):
            files.judge(os.stat_result(facts))
        files.judge(os.stat_result(facts), of_any_user=True)


def test_what_is_no_regular_file_is_not_obeyed_and_keeps_nobody_waiting(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(ControlFileError, match="is not a regular file"):
        read_record(path)
    path.unlink()
    path.symlink_to("/dev/null")
    with pytest.raises(ControlFileError, match="is a symbolic link"):
        read_record(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ControlFileError, match="is not a regular file"):
        read_record(path)


def test_a_change_is_told_once(path: Path) -> None:
    source = FileSource(path)
    assert source.poll() is not None
    assert source.poll() is None
    changed(path, lambda record: record.changed(rearm=1))
    reading = source.poll()
    assert reading is not None
    assert reading.record is not None
    assert reading.record.rearm == 1
    assert source.poll() is None
    path.write_text("{")
    reading = source.poll()
    assert reading is not None
    assert reading.problem.startswith("is not JSON")
    assert source.poll() is None
    path.unlink()
    assert source.poll() == Reading(ControlRecord(), present=False)


def test_a_repair_of_the_mode_alone_is_noticed(path: Path) -> None:
    changed(path, lambda record: record)
    path.chmod(0o666)
    source = FileSource(path)
    assert source.poll() == Reading(None, "has mode 0666, which lets other users write it: 'chmod go-w' it")
    path.chmod(0o644)
    reading = source.poll()
    assert reading is not None
    assert reading.record is not None


# --- writers ---


def test_writers_at_once_lose_no_rearm(path: Path) -> None:
    def rearm() -> None:
        for _ in range(10):
            changed(path, lambda record: record.changed(rearm=record.rearm + 1))

    threads = [threading.Thread(target=rearm) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = read_record(path)
    assert record is not None
    assert record.rearm == 40


def test_a_lock_that_is_held_is_waited_for_within_a_bound(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_WAIT_S", 0.1)
    with (
        files._locked(path),
        pytest.raises(ControlFileError, match=r"is locked by another writer for 0\.1 s"),
    ):
        changed(path, lambda record: record)
    assert not path.exists()


def test_a_broken_file_is_not_replaced_by_a_change(path: Path) -> None:
    path.write_text("{")
    with pytest.raises(ControlFileError, match="is not JSON"):
        changed(path, lambda record: record)
    assert path.read_text() == "{"
    assert not lock_path(path).exists()


def test_a_change_that_cannot_be_is_named_and_leaves_the_file_alone(path: Path) -> None:
    with pytest.raises(ControlFileError, match="depth_max is -1"):
        changed(path, lambda record: record.changed(depth_max=-1))
    with pytest.raises(ControlFileError, match="cannot be written: No such file or directory"):
        changed(path / "below", lambda record: record)
    assert not path.exists()
