"""The ledger: what is in it stays in it, in its order, or shows."""

import errno
import json
import os
from pathlib import Path

import pytest
from qualification.runs.ledger import Ledger, LedgerError, of_kind, read_ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of four lines."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("run", run="r")
    for request in ("a", "b", "c"):
        ledger.append("intent", request=request)
    ledger.close()
    return ledger.path


def test_it_is_read_as_it_was_written(path: Path) -> None:
    entries = read_ledger(path)
    assert [(entry.n, entry.kind) for entry in entries] == [
        (0, "run"),
        (1, "intent"),
        (2, "intent"),
        (3, "intent"),
    ]
    assert [entry["request"] for entry in of_kind(entries, "intent")] == ["a", "b", "c"]
    assert [entry.n for entry in of_kind(entries, "intent", request="b")] == [2]


def test_another_writer_goes_on_where_the_first_one_ended(path: Path) -> None:
    ledger = Ledger(path, resume=True)
    ledger.append("stopped", why="enough")
    ledger.close()
    assert [entry.n for entry in read_ledger(path)] == [0, 1, 2, 3, 4]


def test_a_second_ledger_under_one_name_is_refused(path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger(path)


def changed(lines: list[bytes]) -> dict[str, list[bytes]]:
    """Ways to falsify, each of one kind."""
    other = lines[1].replace(b'"a"', b'"z"')
    renumbered = json.loads(lines[3]) | {"n": 2}
    return {
        "a line is changed": [lines[0], other, *lines[2:]],
        "a line is left out": [lines[0], *lines[2:]],
        "a line is there twice": [*lines[:2], *lines[1:]],
        "lines change places": [lines[0], lines[2], lines[1], lines[3]],
        "the first line is gone": lines[1:],
        "the last line is cut off": [*lines[:3], lines[3][:-9]],
        "the end of the last line is missing": [*lines[:3], lines[3][:-1]],
        "a line is renumbered": [*lines[:3], json.dumps(renumbered, separators=(",", ":")).encode() + b"\n"],
        "a line has spaces": [*lines[:3], lines[3].replace(b":", b": ", 1)],
        "a line is no JSON": [*lines[:3], b"{\n"],
        "a line is a list": [*lines[:3], b"[]\n"],
        "a kind is unknown": [lines[0].replace(b'"kind":"run"', b'"kind":"fun"')],
        "bytes follow": [*lines, b"x"],
    }


@pytest.mark.parametrize("how", changed([b'{"n":0}'] * 4))
def test_a_falsified_ledger_is_refused(path: Path, how: str) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(changed(lines)[how]))
    with pytest.raises(LedgerError, match="line"):
        read_ledger(path)


def test_a_ledger_that_ends_early_can_be_read_and_says_less(path: Path) -> None:
    """What a killed runner leaves: only `complete.json` tells that there should be more."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    assert len(read_ledger(path)) == 2


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_ends_the_ledger_for_good(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    ledger = Ledger(path, resume=True)
    ledger.append("intent", request="d")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(LedgerError, match=r"line 5 cannot be written: No space left"):
            ledger.append("intent", request="e")
    with pytest.raises(LedgerError, match="takes no line more"):
        ledger.append("intent", request="f")


def test_a_line_is_synced_before_append_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(path, resume=True)
    sizes: list[int] = []
    sync = os.fsync

    def seen(file: int) -> None:
        sizes.append(os.fstat(file).st_size)
        sync(file)

    monkeypatch.setattr(os, "fsync", seen)
    ledger.append("intent", request="d")
    ledger.close()
    assert sizes == [path.stat().st_size]
