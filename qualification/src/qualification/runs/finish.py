"""From the evidence of both sides to signed receipts and a published run.

Owns the order: everything is decided first, then written, then published.  Decides nothing itself: conclusions are the
checks', verdict and evidence class follow from them and from the facts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import ValidationError

from qualification.checks.model import Arm, Check, Conclusion, EvidenceError, Verdict, not_run
from qualification.policy import Policy, tightened
from qualification.receipts.canonical import sha256
from qualification.receipts.errors import ReceiptError
from qualification.receipts.fields import NO_DIGEST, File, moment
from qualification.receipts.keys import CryptoSigner
from qualification.receipts.making import Place, build, not_seen, payload, sign
from qualification.receipts.platforms import FactsError, arm_record
from qualification.receipts.run_record import RECEIPTS_FOLDER, receipt_file
from qualification.receipts.statement import ArmRecord, Statement, Subject, Window
from qualification.runs.declared import SIDES, Side, arm_of
from qualification.runs.evidence import ArmEvidence, EvidenceRefusedError, load_side, refuse_strangers
from qualification.runs.folder import Run, RunError, publish, publish_file
from qualification.runs.ledger import of_kind

Sides = Mapping[Side, Mapping[str, ArmEvidence]]


@dataclass(frozen=True)
class Decision:
    """What a check concluded.  hold: why nothing can be concluded, empty where something can."""

    check: Check
    conclusions: Sequence[Conclusion]
    thresholds: Mapping[str, float]
    hold: str = ""


def decide_run(
    run: Run, checks: Sequence[Check], policy: Policy | None = None
) -> tuple[Sides, list[Decision]]:
    """Every check over the evidence of both sides.  Raises RunError where a side is not there or is not this run's."""
    entries = run.ledger.entries
    for side in SIDES:
        if not any(of_kind(entries, "side", side=side)):
            raise RunError(f"{run.root}: the side {side!r} is not complete; run it first.")
    try:
        refuse_strangers(run.root, entries)
        sides: Sides = {side: load_side(run.root, entries, checks, side) for side in SIDES}
    except EvidenceRefusedError as error:
        raise RunError(f"{run.root}: {error}") from None
    ordered = sorted(checks, key=lambda check: check.name)
    return sides, [_decide(check, sides, tightened(check, policy)) for check in ordered]


def finish(
    run: Run,
    checks: Sequence[Check],
    subjects: Sequence[Subject],
    signer: CryptoSigner,
    policy: Policy | None = None,
) -> tuple[Path, list[Statement]]:
    """Receipts of a run whose sides are complete; where it lies now, and what they say.

    policy: checks are decided by its thresholds where they are stricter than their own.

    Raises RunError where it cannot be made, and LedgerError.
    """
    sides, decisions = decide_run(run, checks, policy)
    statements: list[Statement] = []
    previous = NO_DIGEST
    for counter, decision in enumerate(decisions, int(run.record.counter_first)):
        place = Place(counter, previous)
        statements.append(_statement(run, decision, sides, place, subjects))
        previous = sha256(payload(statements[-1]))
    for statement in statements:
        predicate = statement.predicate
        run.ledger.append("decided", check=predicate.check.name, verdict=str(predicate.verdict))
    folder = run.root / RECEIPTS_FOLDER
    try:
        folder.mkdir()
        for statement in statements:
            path = receipt_file(int(statement.predicate.counter), statement.predicate.check.name)
            run.ledger.append("receipt", path=path, sha256=sha256(payload(statement)))
            publish_file(run.root / path, sign(statement, signer))
    except OSError as error:
        raise RunError(f"{folder}: a receipt cannot be written: {error.strerror}.") from error
    return publish(run, signer), statements


def _decide(check: Check, sides: Sides, thresholds: Mapping[str, float]) -> Decision:
    if check.missing or check.decide is None:
        return Decision(check, not_run(check), thresholds)
    pair = [sides[side][arm_of(check, side).name] for side in SIDES]
    for evidence in pair:
        if (why := evidence.left_out.get(check.name)) is not None:
            told = f"It was not begun in the arm {evidence.arm.name}: {why}."
            return Decision(check, not_seen(check, told), thresholds)
    off, on = (evidence.of(check) for evidence in pair)
    try:
        return Decision(check, check.decide(off, on, thresholds), thresholds)
    except EvidenceError as error:
        seen = not_seen(check, "The evidence cannot be judged.")
        return Decision(check, seen, thresholds, str(error) or "no reason given")
    except Exception as error:
        # Not narrower: a check that fails to judge has judged nothing, and the others still do.
        told = f"the check itself failed: {type(error).__name__}: {error}"
        return Decision(check, not_seen(check, "The check could not judge."), thresholds, told)


def _statement(
    run: Run, decision: Decision, sides: Sides, place: Place, subjects: Sequence[Subject]
) -> Statement:
    check = decision.check
    off, on = (_arm(arm_of(check, side), sides[side], check) for side in SIDES)
    try:
        return build(
            check,
            run.record,
            place,
            subjects=subjects,
            off=off,
            on=on,
            conclusions=decision.conclusions,
            evidence=_files(check, sides),
            window=_window(run),
            thresholds=decision.thresholds,
            hold=decision.hold,
        )
    except (ReceiptError, ValidationError) as error:
        raise RunError(f"no receipt of {check.name} can be made: {' '.join(str(error).split())}") from error


def _arm(arm: Arm, side: Mapping[str, ArmEvidence], check: Check) -> ArmRecord:
    evidence = None if check.missing else side.get(arm.name)
    try:
        return arm_record(arm, () if evidence is None else evidence.facts)
    except FactsError as error:
        raise RunError(f"arm {arm.name}: {error}.") from None


def _files(check: Check, sides: Sides) -> list[File]:
    if check.missing:
        return []
    return [file for side in SIDES for file in sides[side][arm_of(check, side).name].files]


def _window(run: Run) -> Window:
    """The run's: both sides lie in it."""
    opened = moment(run.record.started)
    closed = max(entry.utc for entry in of_kind(run.ledger.entries, "side"))
    after = {
        "submission_deadline": run.record.window_submission_seconds,
        "hard_bound": run.record.window_bound_seconds,
    }
    limits = {
        name: (opened + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name, seconds in after.items()
    }
    return Window(opened=run.record.started, closed=closed, **limits)


def verdicts(statements: Sequence[Statement]) -> dict[str, Verdict]:
    """By check."""
    return {one.predicate.check.name: one.predicate.verdict for one in statements}
