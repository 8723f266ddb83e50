"""Files of a run: measured once, below the root, without following or waiting; and what a run records of them."""

import errno
import hashlib
import os
from pathlib import Path

import pytest
from qualification.receipts.fields import NO_DIGEST
from qualification.receipts.files import Files
from qualification.receipts.run_record import complete_record, files_of, ledger_lines, receipt_file, strays_of


def test_a_file_is_measured_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    files = Files(tmp_path)
    # FIPS 180-2, appendix B.1: the digest of "abc".
    expected = (3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    assert files.measure("a") == expected
    (tmp_path / "a").unlink()
    assert files.measure("a") == expected


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert Files(tmp_path).read("a", bytes_max=10) == b"x" * 11
    assert Files(tmp_path).read("a", bytes_max=100) == b"x" * 100


@pytest.mark.parametrize(
    ("name", "number"), [("link", errno.ELOOP), ("folder", errno.EINVAL), ("none", errno.ENOENT)]
)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, name: str, number: int) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the number is compared below
        Files(tmp_path).measure(name)
    assert refused.value.errno == number


def test_a_complete_record_names_every_file_but_itself(tmp_path: Path) -> None:
    (tmp_path / "receipts").mkdir()
    (tmp_path / "receipts/b.json").write_bytes(b"{}")
    (tmp_path / "ledger.jsonl").write_bytes(b"one\ntwo\n")
    (tmp_path / "complete.json").write_bytes(b"")
    (tmp_path / "link").symlink_to("ledger.jsonl")
    os.mkfifo(tmp_path / "pipe")
    record = complete_record(tmp_path, "run-1")
    assert files_of(tmp_path) == ["ledger.jsonl", "receipts/b.json"]
    assert strays_of(tmp_path) == ["link", "pipe"]
    assert [(file.path, file.bytes) for file in record.files] == [("ledger.jsonl", 8), ("receipts/b.json", 2)]
    assert (record.ledger_lines, record.receipts) == (2, 1)
    assert record.ledger_last == hashlib.sha256(b"two\n").hexdigest()


def test_a_run_without_a_ledger_has_no_last_line(tmp_path: Path) -> None:
    record = complete_record(tmp_path, "run-1")
    assert (record.ledger_lines, record.ledger_last) == (0, NO_DIGEST)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [b"\n"]),
        (b"a\nb", [b"a\n", b"b"]),
        (b"a\r\nb\n", [b"a\r\n", b"b\n"]),
        (b"a\n\n", [b"a\n", b"\n"]),
    ],
)
def test_lines_end_at_newlines_alone(data: bytes, lines: list[bytes]) -> None:
    assert ledger_lines(data) == lines


def test_names_of_receipts_stand_in_the_order_of_their_counters() -> None:
    assert receipt_file(7, "a") == "receipts/00000000000000000007-a.json"
    assert sorted([receipt_file(10, "a"), receipt_file(9, "b")]) == [
        receipt_file(9, "b"),
        receipt_file(10, "a"),
    ]
