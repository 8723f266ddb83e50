"""Receipts that are sound one by one and do not make a run, and runs that do not go together."""

import copy
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rfc8785
from qualification.checks.model import Found
from qualification.receipts.envelope import PAYLOAD_TYPE

from receipt_corpus import sound
from receipt_corpus.bench import Bench
from receipt_corpus.mutants import Apply, Mutant

LAST = len(sound.CHECKS) - 1


def _recorded(**fields: Any) -> Apply:
    return lambda bench: bench.run.update(fields)


def _rewrite(name: str, change: Callable[[bytes], bytes]) -> Apply:
    def apply(bench: Bench) -> None:
        path = bench.root / name
        path.write_bytes(change(path.read_bytes()))

    return apply


def _remove(name: str) -> Apply:
    return lambda bench: (bench.root / name).unlink()


def _completed(**fields: Any) -> Apply:
    return lambda bench: bench.call_complete(bench.called_complete() | fields)


def _files_in_another_order(bench: Bench) -> None:
    _completed(files=bench.called_complete()["files"][::-1])(bench)


def _called_complete_by_nobody(bench: Bench) -> None:
    (bench.root / "complete.json").write_bytes(rfc8785.dumps(bench.called_complete()))


def _called_complete_by_another(bench: Bench) -> None:
    """What was killed, or had its ledger taken away, and was then called complete by whoever lacks the key."""
    (bench.root / "ledger.jsonl").write_bytes(b"")
    bench.signer = sound.OTHER_SIGNER
    bench.complete()


def _called_complete_as_a_receipt(bench: Bench) -> None:
    bench.call_complete(bench.called_complete(), payload_type=PAYLOAD_TYPE)


def _linked_record(bench: Bench) -> None:
    (bench.root / "run.json").rename(bench.root / "real.json")
    (bench.root / "run.json").symlink_to(bench.root / "real.json")


def _unspeakable(bench: Bench) -> None:
    with open(os.path.join(os.fsencode(bench.root), b"latin-\xfc"), "wb"):
        pass


def _more_ledger(bench: Bench) -> None:
    """A line that follows well, written after the run was complete."""
    lines = sound.ledger().splitlines(keepends=True)
    line = json.dumps({"n": 3, "before": hashlib.sha256(lines[-1]).hexdigest(), "kind": "late"})
    (bench.root / "ledger.jsonl").write_bytes(sound.ledger() + line.encode() + b"\n")


def _receipt_more(name: str = "") -> Apply:
    """A copy of the last receipt, with the next counter, of another check where a name is given."""

    def apply(bench: Bench) -> None:
        bench.statements.append(copy.deepcopy(bench.statements[-1]))
        bench.predicate(LAST + 1)["counter"] = str(sound.FIRST_COUNTER + LAST + 1)
        if name:
            bench.predicate(LAST + 1)["check"]["name"] = name
            bench.redeclare(LAST + 1)

    return apply


def _declare_more(bench: Bench) -> None:
    for record in (bench.run, *(bench.predicate(place) for place in range(LAST + 1))):
        record["declared_checks"].append("zulu")


def _last(**fields: Any) -> Apply:
    return lambda bench: bench.predicate(LAST).update(fields)


def _last_declares_more(bench: Bench) -> None:
    bench.predicate(LAST)["declared_checks"].append("zulu")


def _other_subject(bench: Bench) -> None:
    bench.statements[LAST]["subject"][0]["digest"]["sha256"] = "0" * 64


def _surplus_subject(bench: Bench) -> None:
    bench.statements[LAST]["subject"].append({"name": "checkpoint:other", "digest": {"sha256": "0" * 64}})


def _start_of_another_policy(bench: Bench) -> None:
    bench.predicate(1)["arms"]["on"]["platform"]["policy"] = "shadow"
    bench.observed[1] = lambda arms: None


def _pinned(place: int, previous: Callable[[Bench], str], **fields: Any) -> Apply:
    def apply(bench: Bench) -> None:
        bench.predicate(place).update(previous=previous(bench), **fields)
        bench.pinned.add(place)

    return apply


def _as_before(bench: Bench) -> str:
    """What the last but one follows."""
    found: str = bench.predicate(LAST - 1)["previous"]
    return found


def _counter(place: int) -> str:
    return str(sound.FIRST_COUNTER + place)


MUTANTS = [
    Mutant("no run.json", "run_record", afterwards=_remove("run.json")),
    Mutant("run.json cut off", "run_record", afterwards=_rewrite("run.json", lambda data: data[:-1])),
    Mutant("run.json with a space", "run_record", afterwards=_rewrite("run.json", lambda data: data + b" ")),
    Mutant("run.json that is a link", "run_record", afterwards=_linked_record),
    Mutant("run.json with a field more", "run_record", _recorded(operator="me")),
    Mutant("run.json that holds the blinding key", "run_record", _recorded(blinding="00" * 16)),
    Mutant(
        "run.json of another version",
        "run_record",
        _recorded(format="urn:spark-offload:qualification:run:v2"),
    ),
    Mutant("run.json by another tool", "run_record", _recorded(tool_version="0.0.9")),
    Mutant(
        "run.json with its checks out of order",
        "run_record",
        _recorded(declared_checks=sound.KNOWN_NAMES[::-1]),
    ),
    Mutant("run.json without an arm", "run_record", lambda bench: bench.run["arms"].pop()),
    Mutant("a window that opened before the run", "run_record", _recorded(started="2026-11-01T10:00:01Z")),
    Mutant("a submission window beyond the bound", "run_record", _recorded(window_submission_seconds=5401)),
    Mutant("no complete.json", "incomplete", afterwards=_remove("complete.json"), complete=False),
    Mutant(
        "complete.json cut off",
        "incomplete",
        afterwards=_rewrite("complete.json", lambda data: data[:99]),
        complete=False,
    ),
    Mutant(
        "complete.json of another run", "incomplete", afterwards=_completed(run_id="run-2"), complete=False
    ),
    Mutant(
        "complete.json without a signature",
        "incomplete",
        afterwards=_called_complete_by_nobody,
        complete=False,
    ),
    Mutant(
        "complete.json of another key", "incomplete", afterwards=_called_complete_by_another, complete=False
    ),
    Mutant(
        "complete.json of a receipt's type",
        "incomplete",
        afterwards=_called_complete_as_a_receipt,
        complete=False,
    ),
    Mutant("one receipt fewer counted", "incomplete", afterwards=_completed(receipts=LAST), complete=False),
    Mutant("one line fewer counted", "incomplete", afterwards=_completed(ledger_lines=2), complete=False),
    Mutant("another last line", "incomplete", afterwards=_completed(ledger_last="0" * 64), complete=False),
    Mutant("files in another order", "incomplete", afterwards=_files_in_another_order, complete=False),
    Mutant(
        "a field more in complete.json", "incomplete", afterwards=_completed(signed_off=True), complete=False
    ),
    Mutant("a ledger that grew afterwards", "incomplete", afterwards=_more_ledger, complete=False),
    Mutant(
        "a file that came afterwards",
        "incomplete",
        afterwards=lambda bench: (bench.root / "late.txt").write_text("late"),
        complete=False,
    ),
    Mutant(
        "a file that went away afterwards",
        "incomplete",
        apply=lambda bench: (bench.root / "note.txt").write_text("note"),
        afterwards=_remove("note.txt"),
        complete=False,
    ),
    Mutant(
        "a link to a file that came afterwards",
        "incomplete",
        afterwards=lambda bench: (bench.root / "late.txt").symlink_to("/etc/hostname"),
    ),
    Mutant(
        "a link to a folder that came afterwards",
        "incomplete",
        afterwards=lambda bench: (bench.root / "arms").symlink_to(bench.root / "observations"),
    ),
    Mutant("a pipe", "incomplete", afterwards=lambda bench: os.mkfifo(bench.root / "late")),
    Mutant("a file whose name is no UTF-8", "incomplete", afterwards=_unspeakable, complete=False),
    Mutant("no ledger", "incomplete", afterwards=_remove("ledger.jsonl")),
    Mutant("a ledger cut off", "ledger", afterwards=_rewrite("ledger.jsonl", lambda data: data[:-4])),
    Mutant(
        "a ledger without its newline", "ledger", afterwards=_rewrite("ledger.jsonl", lambda data: data[:-1])
    ),
    Mutant(
        "a ledger without a line",
        "ledger",
        afterwards=_rewrite("ledger.jsonl", lambda data: b"".join(data.splitlines(True)[::2])),
    ),
    Mutant(
        "a ledger with a word changed",
        "ledger",
        afterwards=_rewrite("ledger.jsonl", lambda data: data.replace(b"intent", b"opened")),
    ),
    Mutant("a ledger of lists", "ledger", afterwards=_rewrite("ledger.jsonl", lambda data: b"[]\n")),
    Mutant("no receipt", "no_receipts", lambda bench: bench.statements.clear()),
    Mutant("a receipt of another run", "run_id", _last(run_id="run-2")),
    Mutant("a receipt of a larger run", "declared_differs", _last_declares_more),
    Mutant("a receipt of other bits", "subjects_differ", _other_subject),
    Mutant("a receipt of more bits", "subjects_differ", _surplus_subject),
    Mutant("a receipt left out", "missing_check", lambda bench: bench.statements.pop()),
    Mutant("a check declared and never run", "missing_check", _declare_more),
    Mutant("a receipt that nobody declared", "surplus_check", _receipt_more("zulu")),
    Mutant("two receipts of a check", "duplicate_check", _receipt_more()),
    Mutant("a start of two policies", "start_shared", _start_of_another_policy),
    Mutant("counters that begin elsewhere", "counter_first", _recorded(counter_first="1")),
    Mutant("a first receipt that follows another", "counter_first", _pinned(0, lambda bench: "1" * 64)),
    Mutant("a counter left out", "counter_gap", _last(counter=_counter(LAST + 1))),
    Mutant("the last counter there is", "counter_gap", _last(counter=str(2**64 - 1))),
    Mutant("two receipts that follow one", "fork", _pinned(LAST, _as_before)),
    Mutant("two receipts in one place", "fork", _pinned(LAST, _as_before, counter=_counter(LAST - 1))),
    Mutant("a counter twice", "fork", _last(counter=_counter(LAST - 1))),
    Mutant("a receipt that follows nothing known", "previous", _pinned(LAST, lambda bench: "1" * 64)),
]


@dataclass(frozen=True)
class Pair:
    """A second sound run that does not go with the first one.  options: of `Bench.make`."""

    name: str
    rule: str
    options: dict[str, Any]

    def make(self, folder: Path) -> list[Path]:
        """The roots of both."""
        first, second = Bench.make(folder / "first"), Bench.make(folder / "second", **self.options)
        return [first.root, second.root]


PAIRS = [
    Pair("a run id twice", "run_id_reused", {"counter": 141}),
    Pair("a counter in two runs", "counter_overlap", {"run_id": "run-2", "counter": 43}),
    Pair("a PASS beside a FAIL", "conflict", {"run_id": "run-2", "counter": 141, "found": Found.PASSED}),
]
