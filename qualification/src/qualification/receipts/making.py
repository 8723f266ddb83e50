"""Making a receipt: what the runner calls.  Nothing leaves here that verification would refuse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qualification import __version__
from qualification.checks.model import Check, Conclusion, Found, Verdict
from qualification.receipts.canonical import to_bytes
from qualification.receipts.digests import declaration_digest
from qualification.receipts.envelope import seal
from qualification.receipts.errors import ReceiptError
from qualification.receipts.fields import NO_DIGEST, File
from qualification.receipts.judge import coverage_from, judge, verdict_from
from qualification.receipts.keys import CryptoSigner
from qualification.receipts.platforms import evidence_class
from qualification.receipts.run_record import RunRecord
from qualification.receipts.statement import (
    PREDICATE_TYPE,
    SCHEMA_VERSION,
    STATEMENT_TYPE,
    ArmRecord,
    Arms,
    ConclusionRecord,
    Declaration,
    Predicate,
    Statement,
    SubcaseRecord,
    Subject,
    Threshold,
    Window,
)

LINE_MAX = 1000


@dataclass(frozen=True)
class Place:
    """Of a receipt in its run's chain."""

    counter: int
    previous: str = NO_DIGEST


def declaration(check: Check) -> Declaration:
    """A check as receipts state it."""
    made = Declaration(
        name=check.name,
        digest=NO_DIGEST,
        subcases=tuple(
            SubcaseRecord(name=one.name, asks=one.asks, needs=one.needs) for one in check.subcases
        ),
        thresholds=_thresholds(check.thresholds),
    )
    return made.model_copy(update={"digest": declaration_digest(made, check.arm_variable)})


def not_seen(check: Check, why: str) -> list[Conclusion]:
    """Conclusions of a check that did not run."""
    return [Conclusion(subcase.name, Found.NOT_SEEN, why) for subcase in check.subcases]


def build(
    check: Check,
    run: RunRecord,
    place: Place,
    *,
    subjects: Sequence[Subject],
    off: ArmRecord,
    on: ArmRecord,
    conclusions: Sequence[Conclusion],
    evidence: Sequence[File],
    window: Window,
    thresholds: Mapping[str, float],
    notes: Sequence[str] = (),
    hold: str = "",
) -> Statement:
    """The receipt of a check.  Verdict, counts and evidence class follow from the rest.

    hold: why the verdict is HOLD whatever follows; empty: what follows.  notes, and sentences of conclusions: for
    people; what is no printable line of 1,000 characters is made one.

    Raises ReceiptError where a rule would be violated, pydantic's ValidationError where a field cannot hold its value.
    """
    declared = declaration(check)
    concluded = tuple(map(conclusion_record, conclusions))
    verdict, remarks = _verdict(declared, concluded, notes, hold)
    predicate = Predicate(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        run_id=run.run_id,
        check=declared,
        arm_variable=check.arm_variable,
        arms=Arms(off=off, on=on),
        evidence_class=evidence_class(off.platform, on.platform),
        counter=str(place.counter),
        previous=place.previous,
        declared_checks=run.declared_checks,
        verdict=verdict,
        conclusions=concluded,
        coverage=coverage_from(declared, concluded),
        evidence=tuple(sorted(evidence, key=lambda file: file.path)),
        window=window,
        thresholds=_thresholds(thresholds),
        notes=remarks,
    )
    return sound(
        Statement(
            _type=STATEMENT_TYPE,
            subject=tuple(sorted(subjects, key=lambda subject: subject.name)),
            predicateType=PREDICATE_TYPE,
            predicate=predicate,
        )
    )


def sound(statement: Statement) -> Statement:
    """The same statement.  Raises ReceiptError with every rule that it violates by itself."""
    if found := judge(statement):
        raise ReceiptError(found)
    return statement


def payload(statement: Statement) -> bytes:
    """What is signed, and whose SHA-256 the next receipt names as `previous`."""
    return to_bytes(statement)


def sign(statement: Statement, signer: CryptoSigner) -> bytes:
    """The receipt's file.  Raises ReceiptError where the statement is not sound."""
    return seal(payload(sound(statement)), signer)


def line(text: str) -> str:
    """One printable line, cut where it is too long."""
    plain = " ".join("".join(c if c >= " " and c != "\x7f" else " " for c in text).split())
    plain = plain.encode("utf-8", "replace").decode("utf-8")
    return (
        plain
        if 0 < len(plain) <= LINE_MAX
        else (plain[: LINE_MAX - 3] + "..." if plain else "(nothing said)")
    )


def conclusion_record(one: Conclusion) -> ConclusionRecord:
    """As receipts have it."""
    return ConclusionRecord(subcase=one.subcase, found=one.found, why=line(one.why), observed=one.observed)


def _verdict(
    declared: Declaration, concluded: tuple[ConclusionRecord, ...], notes: Sequence[str], hold: str
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict, and the notes; a HOLD is never without one."""
    verdict = Verdict.HOLD if hold else verdict_from(declared, concluded)
    remarks = [*notes, *([hold] if hold else [])]
    if verdict is Verdict.HOLD and not remarks:
        remarks = ["the conclusions are not those of the declared subcases, in their order"]
    return verdict, tuple(map(line, remarks))


def _thresholds(values: Mapping[str, float]) -> tuple[Threshold, ...]:
    return tuple(Threshold(name=name, value=float(values[name])) for name in sorted(values))
