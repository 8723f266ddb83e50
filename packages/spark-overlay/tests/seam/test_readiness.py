"""A readiness record is read as it was written, or refused by file and field."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.readiness import ReadinessError, ReadinessRecord, read_record, write_record

RECORD = ReadinessRecord(
    pid=4711,
    start_id="s1",
    policy="capacity",
    endpoint="tcp://h:1",
    identity="ab" * 32,
    versions={"vllm": "0.32.0"},
    worker="not there yet: nobody listens",
)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_record(tmp_path / "ready.json", RECORD)
    assert read_record(tmp_path / "ready.json") == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["ready.json"]


def test_a_second_record_replaces_the_first_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text("x" * 5000)
    write_record(path, RECORD)
    assert read_record(path) == RECORD


def test_a_record_of_an_overlay_that_does_not_tell_of_the_worker_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    write_record(path, RECORD)
    values = json.loads(path.read_text())
    del values["worker"]
    path.write_text(json.dumps(values))
    assert read_record(path) == replace(RECORD, worker="")


def test_no_file_is_no_record(tmp_path: Path) -> None:
    assert read_record(tmp_path / "ready.json") is None


def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        write_record(tmp_path / "nowhere" / "ready.json", RECORD)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format": 2}, "format is 2"),
        ({"pid": "4711"}, "pid is '4711'"),
        ({"pid": 0}, "pid is 0"),
        ({"start_id": None}, "start_id is None"),
        ({"identity": 7}, "identity is 7"),
        ({"versions": {"vllm": 32}}, "versions is"),
        ({"versions": []}, "versions is"),
        ({"worker": 1}, "worker is 1"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, change: dict[str, object], named: str) -> None:
    path = tmp_path / "ready.json"
    write_record(path, RECORD)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ReadinessError, match=named):
        read_record(path)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_readiness_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "ready.json"
    path.write_bytes(data)
    with pytest.raises(ReadinessError):
        read_record(path)
