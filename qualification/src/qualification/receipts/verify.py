"""Verification: of a receipt, of a run, of several runs.  It returns what held or raises all that did not; no bool.

Order: bytes, signature, fields; what fails there stands alone.  Then every other rule, all of them reported.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from qualification import __version__
from qualification.receipts.canonical import BYTES_MAX, field_violations, read_canonical, read_model, sha256
from qualification.receipts.envelope import COMPLETE_TYPE, open_envelope
from qualification.receipts.errors import ReceiptError, Violation, refuse
from qualification.receipts.evidence import judge_evidence
from qualification.receipts.facts import judge_facts
from qualification.receipts.files import Files
from qualification.receipts.judge import judge
from qualification.receipts.judge_run import VerifiedReceipt, judge_run, judge_runs
from qualification.receipts.keys import SSlibKey
from qualification.receipts.rules import RULES
from qualification.receipts.run_record import (
    COMPLETE_FILE,
    LEDGER_FILE,
    RECEIPTS_FOLDER,
    RUN_FILE,
    CompleteRecord,
    RunRecord,
    complete_record,
    ledger_lines,
    strays_of,
)
from qualification.receipts.statement import PREDICATE_TYPE, SCHEMA_VERSION, Statement

_PREDICATE_FAMILY = re.compile(r"(urn:spark-offload:qualification:receipt:v)([1-9][0-9]{0,8})")
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_BEFORE_FACTS = {"arm_not_started", "arm_ranks", "start_ids", "evidence_duplicate"} | {
    rule.id for rule in RULES if rule.stage == "evidence"
}
"""Where one of these is violated, evidence cannot be held against what the receipt says of the arms."""


@dataclass(frozen=True)
class VerifiedRun:
    """A run of which every rule holds.  receipts: in the order of their counters.  key_id: of who signed all of it."""

    root: Path
    record: RunRecord
    complete: CompleteRecord
    receipts: tuple[VerifiedReceipt, ...]
    key_id: str


def read_statement(payload: bytes, where: str = "") -> Statement:
    """A statement from its canonical form.  Raises ReceiptError of the stages `bytes` and `fields`."""
    raw = read_canonical(payload, where)
    _judge_version(raw, where)
    try:
        return Statement.model_validate_json(payload)
    except ValidationError as error:
        raise ReceiptError(field_violations(error, where)) from None


def read_receipt(data: bytes, key: SSlibKey, where: str = "") -> VerifiedReceipt:
    """A receipt that the key signed, not judged any further.  Raises ReceiptError; what is raised stands alone."""
    payload = open_envelope(data, key, where)
    return VerifiedReceipt(read_statement(payload, where), sha256(payload), where)


def verify_receipt(data: bytes, key: SSlibKey, root: Path, where: str = "") -> VerifiedReceipt:
    """One receipt and its evidence below `root`.  Raises ReceiptError.  Says nothing of the run that it is of."""
    receipt = read_receipt(data, key, where)
    if found := _judge_receipt(receipt, Files(root)):
        raise ReceiptError(found)
    return receipt


def verify_run(root: Path, key: SSlibKey) -> VerifiedRun:
    """A run's folder, with all of its receipts and evidence.  Raises ReceiptError with everything that is wrong."""
    receipts = _read_receipts(root, key)
    files = Files(root)
    found: list[Violation] = []
    record = _read_record(root, found)
    for receipt in receipts:
        found += _judge_receipt(receipt, files)
    found += judge_run(record, receipts, root.name)
    found += _judge_ledger(root)
    found += _judge_strays(root, receipts)
    complete = _read_complete(root, key, record, files, found)
    if found:
        raise ReceiptError(found)
    assert record is not None
    assert complete is not None
    ordered = sorted(receipts, key=lambda receipt: receipt.counter)
    return VerifiedRun(root, record, complete, tuple(ordered), key.keyid)


def verify_runs(roots: Sequence[Path], key: SSlibKey) -> tuple[VerifiedRun, ...]:
    """Several runs, and the rules between them.  Raises ReceiptError with what is wrong in any."""
    runs: list[VerifiedRun] = []
    found: list[Violation] = []
    for root in roots:
        try:
            runs.append(verify_run(root, key))
        except ReceiptError as error:
            found += error.violations
    found += judge_runs([run.receipts for run in runs])
    if found:
        raise ReceiptError(found)
    return tuple(runs)


def find_runs(folder: Path) -> list[Path]:
    """The folder itself where it is a run's, else each folder in it that is, also of a killed one.  Raises OSError."""
    if _is_a_run(folder):
        return [folder]
    return sorted(path for path in folder.iterdir() if path.is_dir() and _is_a_run(path))


def _is_a_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (RUN_FILE, LEDGER_FILE, COMPLETE_FILE, RECEIPTS_FOLDER))


def _judge_receipt(receipt: VerifiedReceipt, files: Files) -> list[Violation]:
    found = judge(receipt.statement, receipt.where)
    found += judge_evidence(receipt.predicate.evidence, files, receipt.where)
    if not _BEFORE_FACTS & {violation.rule for violation in found}:
        found += judge_facts(receipt.predicate, files, receipt.where)
    return found


def _judge_version(raw: Any, where: str) -> None:
    """Before the fields, since nobody knows those of a newer receipt."""
    if not isinstance(raw, dict):
        return
    kind, predicate = raw.get("predicateType"), raw.get("predicate")
    if isinstance(kind, str) and kind != PREDICATE_TYPE:
        family = _PREDICATE_FAMILY.fullmatch(kind)
        if family is None:
            raise refuse("predicate_type", f"predicateType is {kind!r}, not {PREDICATE_TYPE!r}", where)
        sentence = f"the receipt is of version {family[2]}, this verifier knows {SCHEMA_VERSION}"
        raise refuse("version", sentence, where)
    if not isinstance(predicate, dict):
        return
    schema, tool = predicate.get("schema_version"), predicate.get("tool_version")
    if type(schema) is int and schema > SCHEMA_VERSION:
        sentence = f"schema_version of the receipt is {schema}, this verifier knows {SCHEMA_VERSION}"
        raise refuse("version", sentence, where)
    if isinstance(tool, str) and (made := _VERSION.fullmatch(tool)):
        own = _VERSION.fullmatch(__version__)
        assert own is not None, __version__
        if tuple(map(int, made.groups())) > tuple(map(int, own.groups())):
            raise refuse(
                "version", f"the receipt is by qualify {tool}, this verifier is {__version__}", where
            )


def _read_receipts(root: Path, key: SSlibKey) -> list[VerifiedReceipt]:
    receipts: list[VerifiedReceipt] = []
    found: list[Violation] = []
    folder = root / RECEIPTS_FOLDER
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    for name in names:
        where = f"{root.name}/{RECEIPTS_FOLDER}/{name}"
        try:
            receipts.append(
                read_receipt(Files(root).read(f"{RECEIPTS_FOLDER}/{name}", BYTES_MAX), key, where)
            )
        except OSError as error:
            found.append(Violation("unreadable", f"the file cannot be read: {error.strerror}", where))
        except ReceiptError as error:
            found += error.violations
    if found:
        raise ReceiptError(found)
    return receipts


def _read_record(root: Path, found: list[Violation]) -> RunRecord | None:
    where = f"{root.name}/{RUN_FILE}"
    try:
        return read_model(RunRecord, Files(root).read(RUN_FILE, BYTES_MAX), where)
    except OSError as error:
        found.append(Violation("run_record", f"the file cannot be read: {error.strerror}", where))
    except ReceiptError as error:
        found += [Violation("run_record", one.sentence, where) for one in error.violations]
    return None


def _read_complete(
    root: Path, key: SSlibKey, record: RunRecord | None, files: Files, found: list[Violation]
) -> CompleteRecord | None:
    where = f"{root.name}/{COMPLETE_FILE}"
    try:
        payload = open_envelope(Files(root).read(COMPLETE_FILE, BYTES_MAX), key, where, COMPLETE_TYPE)
        stated = read_model(CompleteRecord, payload, where)
        lies_there = complete_record(root, record.run_id if record else stated.run_id, files)
    except OSError as error:
        found.append(Violation("incomplete", f"a file cannot be read: {error.strerror}", where))
        return None
    except ReceiptError as error:
        found += [Violation("incomplete", one.sentence, where) for one in error.violations]
        return None
    except ValueError:
        found.append(Violation("incomplete", "a file's name cannot stand in a record", where))
        return None
    found += [Violation("incomplete", sentence, where) for sentence in _differences(stated, lies_there)]
    return stated


def _judge_strays(root: Path, receipts: Sequence[VerifiedReceipt]) -> list[Violation]:
    """What no digest can stand for.  Where a record or evidence should be, a rule of its own says so."""
    known = {RUN_FILE, LEDGER_FILE, COMPLETE_FILE}
    for receipt in receipts:
        for file in receipt.predicate.evidence:
            known |= {file.path, *map(str, PurePosixPath(file.path).parents)}
    return [
        Violation(
            "incomplete", f"files: {path} is there and is no regular file", f"{root.name}/{COMPLETE_FILE}"
        )
        for path in strays_of(root)
        if path not in known
    ]


def _differences(stated: CompleteRecord, lies_there: CompleteRecord) -> Iterator[str]:
    said = {file.path: file for file in stated.files}
    there = {file.path: file for file in lies_there.files}
    for path in sorted(said.keys() | there.keys()):
        if path not in there:
            yield f"files: {path} is not there"
        elif path not in said:
            yield f"files: {path} is there and not listed"
        elif said[path] != there[path]:
            yield f"files: {path} has another size or digest than listed"
    if [file.path for file in stated.files] != sorted(said):
        yield "files is not sorted or has a path twice"
    for field in ("run_id", "ledger_lines", "ledger_last", "receipts"):
        if getattr(stated, field) != getattr(lies_there, field):
            yield f"{field} is {getattr(stated, field)}, but should be {getattr(lies_there, field)}"
    if LEDGER_FILE not in there:
        yield f"files: there is no {LEDGER_FILE}"


def _judge_ledger(root: Path) -> list[Violation]:
    """Its numbers and its chain; what its lines mean is the runner's matter."""
    where = f"{root.name}/{LEDGER_FILE}"
    try:
        lines = ledger_lines(Files(root).read(LEDGER_FILE))
    except OSError:
        return []  # `incomplete` says so
    before = "0" * 64
    for number, line in enumerate(lines):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not line.endswith(b"\n") or not isinstance(values, dict):
            return [Violation("ledger", f"line {number} is cut off or no JSON object", where)]
        if values.get("n") != number or values.get("before") != before:
            return [
                Violation("ledger", f"line {number}: n or before does not follow the line before it", where)
            ]
        before = sha256(line)
    return []
