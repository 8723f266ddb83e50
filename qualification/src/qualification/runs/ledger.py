"""What a run did, line by line: append-only, each line synced to the disk before the act that it tells of.

A line is a JSON object: `n` counts from 0, `before` is the sha256 of the line before, its end included (zeros for the
first), `utc`, `kind`, then the kind's own fields.  So a line that is changed, left out, added or cut shows.  Standard
library only.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualification.runs.disk import sync, utc
from qualification.runs.interruption import held

NOTHING_BEFORE = "0" * 64
LINE_BYTES_MAX = 1 << 20
OWN = ("n", "before", "utc", "kind")
KINDS = {
    "run": "the run begins: what it declared",
    "window": "a window opens for one side",
    "start": "an engine process is about to be started",
    "ready": "it says that it is up",
    "check": "a check is about to be driven",
    "case": "a case is about to begin",
    "fault": "a fault is about to be armed",
    "intent": "a request is about to be sent",
    "opened": "the engine took it",
    "completed": "it ended",
    "checkpoint": "everything up to here was looked at",
    "not_begun": "a check was left out, and why",
    "evidence": "a file of a start, as it is when the start is over",
    "ended": "a start is over, by itself and in order",
    "abandoned": "a start is over otherwise; nothing of it counts",
    "stopped": "the supervisor, or a signal, stopped the run",
    "side": "one side of the run is complete",
    "decided": "a check's verdict",
    "receipt": "a receipt is about to be written",
    "publish": "the run is about to get its name",
}
"""Every kind of line, and what it says."""


class LedgerError(Exception):
    """The ledger is not what a run writes, or cannot be written; the text names file and line."""


@dataclass(frozen=True)
class Entry:
    """One line."""

    n: int
    utc: str
    kind: str
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


class Ledger:
    """The writer.  After one failure it takes nothing more: what follows a hole proves nothing."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        """A new ledger, or with resume the one that is there, read to its end first.  Raises LedgerError."""
        self.path = path
        self.entries: list[Entry] = []
        self._before = NOTHING_BEFORE
        if resume:
            self.entries, self._before = _read(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (0 if resume else os.O_CREAT | os.O_EXCL)
        try:
            self._file = os.open(path, flags, 0o644)
        except OSError as error:
            raise LedgerError(f"{path} cannot be opened: {error.strerror}.") from error
        if not resume:
            sync(path.parent)

    def append(self, kind: str, **fields: Any) -> None:
        """One line, on the disk when this returns.  Raises LedgerError."""
        assert kind in KINDS, kind
        assert not set(fields) & set(OWN), fields
        if self._file < 0:
            raise LedgerError(f"{self.path} takes no line more: it is closed, or one could not be written.")
        entry = Entry(len(self.entries), utc(), kind, fields)
        line = _line(entry, self._before)
        with held():
            try:
                _write_all(self._file, line)
                os.fsync(self._file)
            except OSError as error:
                self.close()
                raise LedgerError(
                    f"{self.path}: line {entry.n} cannot be written: {error.strerror}."
                ) from error
            self.entries.append(entry)
            self._before = _digest(line)

    def close(self) -> None:
        """No line more.  Safe to call again."""
        file, self._file = self._file, -1
        if file >= 0:
            with suppress(OSError):
                os.close(file)


def read_ledger(path: Path) -> list[Entry]:
    """Every line, in order.  Raises LedgerError on anything that no run could have written."""
    return _read(path)[0]


def of_kind(entries: Iterable[Entry], kind: str, **wanted: Any) -> Iterator[Entry]:
    """Lines of one kind that say so."""
    assert kind in KINDS, kind
    for entry in entries:
        if entry.kind == kind and all(entry.fields.get(name) == value for name, value in wanted.items()):
            yield entry


def _read(path: Path) -> tuple[list[Entry], str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}.") from error
    entries: list[Entry] = []
    before = NOTHING_BEFORE
    for line in data.splitlines(keepends=True):
        entry = _entry(path, line, len(entries), before)
        before = _digest(line)
        entries.append(entry)
    return entries, before


def _entry(path: Path, line: bytes, n: int, before: str) -> Entry:
    where = f"{path}: line {n}"
    if not line.endswith(b"\n"):
        raise LedgerError(f"{where} is cut off.")
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise LedgerError(f"{where} is not JSON.") from None
    if not isinstance(values, dict) or not set(OWN) <= set(values):
        raise LedgerError(f"{where} is not a line of a ledger.")
    fields = {name: value for name, value in values.items() if name not in OWN}
    entry = Entry(values["n"], values["utc"], values["kind"], fields)
    if values["before"] != before:
        raise LedgerError(f"{where} does not follow the line before it.")
    if values["n"] != n or entry.kind not in KINDS or _line(entry, before) != line:
        raise LedgerError(f"{where} is not as a run writes it.")
    return entry


def _line(entry: Entry, before: str) -> bytes:
    values = {"n": entry.n, "before": before, "utc": entry.utc, "kind": entry.kind, **entry.fields}
    line = json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    assert len(line) <= LINE_BYTES_MAX, f"a line of {len(line)} bytes"
    return line


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
