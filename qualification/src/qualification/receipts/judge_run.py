"""What must hold between the receipts of one run, and between runs.  Pure: no file and no key."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from qualification.checks.model import Verdict
from qualification.receipts.errors import Violation
from qualification.receipts.fields import NO_DIGEST, moment
from qualification.receipts.judge import twice
from qualification.receipts.run_record import RunRecord
from qualification.receipts.statement import ArmRecord, Predicate, Statement

Judged = Iterator[tuple[str, str]]
"""Rule and sentence."""


@dataclass(frozen=True)
class VerifiedReceipt:
    """A receipt whose signature held.  digest: SHA-256 of its payload.  where: its file."""

    statement: Statement
    digest: str
    where: str = ""

    @property
    def predicate(self) -> Predicate:
        """What the statement says."""
        return self.statement.predicate

    @property
    def counter(self) -> int:
        """As a number."""
        return int(self.predicate.counter)

    @property
    def subjects(self) -> dict[str, str]:
        """Digests by name."""
        return {subject.name: subject.digest.sha256 for subject in self.statement.subject}


def judge_run(
    record: RunRecord | None, receipts: Sequence[VerifiedReceipt], where: str = ""
) -> list[Violation]:
    """Rules of the stage `run` that receipts alone can violate.  record: None where it could not be read."""
    if not receipts:
        return [Violation("no_receipts", "the run has no receipt", where)]
    found: list[tuple[str, str]] = []
    for one in _JUDGES:
        found += one(receipts)
    if record is not None:
        found += [*_record(record, receipts), *_first(record, receipts)]
    found += _checks(record.declared_checks if record else receipts[0].predicate.declared_checks, receipts)
    return [Violation(rule, sentence, where) for rule, sentence in found]


def judge_runs(runs: Sequence[Sequence[VerifiedReceipt]]) -> list[Violation]:
    """Rules of the stage `runs`, over the receipts of each run that verified."""
    ids = [run[0].predicate.run_id for run in runs if run]
    found = [Violation("run_id_reused", f"run_id {run_id} is that of two runs") for run_id in twice(ids)]
    owners: dict[int, str] = {}
    for run_id, run in zip(ids, filter(None, runs), strict=True):
        for receipt in run:
            other = owners.setdefault(receipt.counter, run_id)
            if other != run_id:
                sentence = f"counter {receipt.counter} stands in the runs {other} and {run_id}"
                found.append(Violation("counter_overlap", sentence))
    return found + list(_conflicts([receipt for run in runs for receipt in run]))


def _conflicts(receipts: Sequence[VerifiedReceipt]) -> Iterator[Violation]:
    passed = [one for one in receipts if one.predicate.verdict is Verdict.PASS]
    failed = [one for one in receipts if one.predicate.verdict is Verdict.FAIL]
    for good in passed:
        for bad in failed:
            name = good.predicate.check.name
            if name == bad.predicate.check.name and good.subjects == bad.subjects:
                runs = f"run {good.predicate.run_id} says PASS, run {bad.predicate.run_id} says FAIL"
                yield Violation("conflict", f"{name}: {runs}, about the same subjects")


def _subjects(receipts: Sequence[VerifiedReceipt]) -> Judged:
    first = receipts[0]
    for receipt in receipts[1:]:
        if receipt.subjects != first.subjects:
            yield "subjects_differ", f"subject: {_name(receipt)} is about other subjects than {_name(first)}"


def _record(record: RunRecord, receipts: Sequence[VerifiedReceipt]) -> Judged:
    if list(record.declared_checks) != sorted(set(record.declared_checks)):
        yield "run_record", "run.json: declared_checks is not sorted or has a check twice"
    if record.window_submission_seconds > record.window_bound_seconds:
        yield "run_record", "run.json: window_submission_seconds is more than window_bound_seconds"
    for receipt in receipts:
        predicate = receipt.predicate
        if predicate.run_id != record.run_id:
            yield (
                "run_id",
                f"run_id of {_name(receipt)} is {predicate.run_id}; that of run.json is {record.run_id}",
            )
        if predicate.tool_version != record.tool_version:
            said = f"{predicate.tool_version}; run.json says {record.tool_version}"
            yield "run_record", f"tool_version of {_name(receipt)} is {said}"
        for side in (predicate.arms.off, predicate.arms.on):
            if side.arm not in record.arms:
                yield (
                    "run_record",
                    f"arms: run.json does not declare the arm {side.arm.name} of {_name(receipt)}",
                )
        if moment(predicate.window.opened) < moment(record.started):
            yield "run_record", f"window of {_name(receipt)} opened before the run started"


def _checks(declared: Sequence[str], receipts: Sequence[VerifiedReceipt]) -> Judged:
    names = [receipt.predicate.check.name for receipt in receipts]
    for receipt in receipts:
        if set(receipt.predicate.declared_checks) != set(declared):
            yield "declared_differs", f"declared_checks of {_name(receipt)} are not those of the run"
    for name in sorted(set(declared) - set(names)):
        yield "missing_check", f"the run declares {name} and has no receipt of it"
    for name in sorted(set(names) - set(declared)):
        yield "surplus_check", f"the run has a receipt of {name} and does not declare it"
    for name in twice(names):
        yield "duplicate_check", f"the run has two receipts of {name}"


def _starts(receipts: Sequence[VerifiedReceipt]) -> Judged:
    """Between receipts; what one says twice of a start is `start_ids`."""
    known: dict[str, tuple[VerifiedReceipt, ArmRecord]] = {}
    for receipt in receipts:
        for side in (receipt.predicate.arms.off, receipt.predicate.arms.on):
            for start in side.starts:
                owner, other = known.setdefault(start, (receipt, side))
                if owner is not receipt and (other.arm, other.platform) != (side.arm, side.platform):
                    yield (
                        "start_shared",
                        f"arms: {_name(owner)} and {_name(receipt)} differ about the start {start}",
                    )


def _chain(receipts: Sequence[VerifiedReceipt]) -> Judged:
    ordered = sorted(receipts, key=lambda receipt: receipt.counter)
    followed = set(twice([receipt.predicate.previous for receipt in ordered]))
    for digest in sorted(followed):
        yield "fork", f"previous: two receipts follow {digest}"
    for before, after in pairwise(ordered):
        previous = after.predicate.previous
        if after.counter == before.counter:
            if previous not in followed:
                yield "fork", f"counter {after.counter} stands in two receipts"
        elif after.counter != before.counter + 1:
            yield "counter_gap", f"counter {after.counter} follows {before.counter}"
        elif previous != before.digest and previous not in followed:
            yield "previous", f"previous of {_name(after)} is {previous}; the one before has {before.digest}"


def _first(record: RunRecord, receipts: Sequence[VerifiedReceipt]) -> Judged:
    first = min(receipts, key=lambda receipt: receipt.counter)
    if first.counter != int(record.counter_first):
        yield (
            "counter_first",
            f"counter of the first receipt is {first.counter}; run.json says {record.counter_first}",
        )
    if first.predicate.previous != NO_DIGEST:
        yield "counter_first", "previous of the run's first receipt is not 64 zeros"


def _name(receipt: VerifiedReceipt) -> str:
    return receipt.where or receipt.predicate.check.name


_JUDGES: tuple[Callable[[Sequence[VerifiedReceipt]], Judged], ...] = (_subjects, _starts, _chain)
