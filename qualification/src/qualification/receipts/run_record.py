"""What a run says of itself: `run.json`, its first file, and `complete.json`, its last one, published by rename.

The runner writes them, verification reads them.  A run is a folder; every path in a record is relative to it.
A run that was killed lacks `complete.json` or disagrees with it, and verifies as `incomplete`.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from qualification.receipts.canonical import sha256
from qualification.receipts.fields import (
    NO_DIGEST,
    U64,
    ArmDeclaration,
    Count,
    File,
    Identifier,
    Model,
    Name,
    Sha256,
    Time,
    Version,
)
from qualification.receipts.files import Files

RUN_FORMAT: Final = "urn:spark-offload:qualification:run:v1"
COMPLETE_FORMAT: Final = "urn:spark-offload:qualification:complete:v1"
BLINDING: Final = "per run, not stored"
RUN_FILE = "run.json"
LEDGER_FILE = "ledger.jsonl"
COMPLETE_FILE = "complete.json"
RECEIPTS_FOLDER = "receipts"
"""One file per receipt: `receipt_file(counter, check)`."""


class RunRecord(Model):
    """Published before the first arm starts.

    platform: as the operator named it ("spark", "cpu", "simulator"); the evidence class does not come from it.
    declared_checks: sorted.  counter_first: of the run's first receipt.  started: by this host's clock.
    window_submission_seconds, window_bound_seconds: from `started`.
    """

    format: Literal["urn:spark-offload:qualification:run:v1"]
    run_id: Identifier
    tool_version: Version
    platform: Identifier
    declared_checks: Annotated[tuple[Name, ...], Field(min_length=1)]
    arms: tuple[ArmDeclaration, ...]
    counter_first: U64
    blinding: Literal["per run, not stored"]
    started: Time
    window_submission_seconds: Annotated[int, Field(ge=1, le=604800)]
    window_bound_seconds: Annotated[int, Field(ge=1, le=604800)]


class CompleteRecord(Model):
    """Published after everything else, in an envelope of whoever signs receipts.

    So nobody else can call a run complete, nor change its ledger or what it declared.

    files: every file of the run but this one, sorted by path.  ledger_lines: of `LEDGER_FILE`.
    ledger_last: digest of its last line with its newline, as the ledger's own chain has it; 64 zeros where it has none.
    receipts: files in `RECEIPTS_FOLDER`.
    """

    format: Literal["urn:spark-offload:qualification:complete:v1"]
    run_id: Identifier
    files: tuple[File, ...]
    ledger_lines: Count
    ledger_last: Sha256
    receipts: Count


def receipt_file(counter: int, check: str) -> str:
    """Path of a receipt below the run's root; sorted by name, receipts stand in the order of their counters."""
    return f"{RECEIPTS_FOLDER}/{counter:020d}-{check}.json"


def files_of(root: Path) -> list[str]:
    """Paths of all regular files below the root, `COMPLETE_FILE` left out, sorted.  No symbolic link is followed."""
    return sorted(path for path, mode in _below(root) if stat.S_ISREG(mode) and path != COMPLETE_FILE)


def strays_of(root: Path) -> list[str]:
    """Paths of all that is neither folder nor regular file, sorted: links, pipes, sockets, devices.  No run has any."""
    return sorted(path for path, mode in _below(root) if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)))


def _below(root: Path) -> Iterator[tuple[str, int]]:
    """Everything below the root, by path and mode.  No symbolic link is followed."""
    for folder, folders, names in os.walk(root):
        for path in (Path(folder) / name for name in (*folders, *names)):
            yield path.relative_to(root).as_posix(), path.lstat().st_mode


def ledger_lines(data: bytes) -> list[bytes]:
    """Lines of a ledger, each with its newline; a last one that was cut off has none."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1].removesuffix(b"\n")
    return lines if lines[-1] else lines[:-1]


def complete_record(root: Path, run_id: str, files: Files | None = None) -> CompleteRecord:
    """What `COMPLETE_FILE` must say of the folder as it is now.  Raises OSError; ValueError for an unspeakable name."""
    files = files or Files(root)
    paths = files_of(root)
    lines = ledger_lines(files.read(LEDGER_FILE) if LEDGER_FILE in paths else b"")
    described = []
    for path in paths:
        size, digest = files.measure(path)
        described.append(File(path=path, bytes=size, sha256=digest))
    return CompleteRecord(
        format=COMPLETE_FORMAT,
        run_id=run_id,
        files=tuple(described),
        ledger_lines=len(lines),
        ledger_last=sha256(lines[-1]) if lines else NO_DIGEST,
        receipts=sum(1 for path in paths if path.startswith(f"{RECEIPTS_FOLDER}/")),
    )
