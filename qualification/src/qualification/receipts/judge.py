"""What must hold within one receipt.  Pure: no file, no key, no other receipt."""

from collections import Counter
from collections.abc import Callable, Iterator

from qualification.checks.model import Arm, Check, Conclusion, Found, Subcase, Verdict, verdict_of
from qualification.receipts.digests import declaration_digest
from qualification.receipts.errors import Violation
from qualification.receipts.fields import moment
from qualification.receipts.platforms import evidence_class, not_native
from qualification.receipts.statement import (
    ArmRecord,
    ConclusionRecord,
    Coverage,
    Declaration,
    Predicate,
    Statement,
    Threshold,
)

Judged = Iterator[tuple[str, str]]
"""Rule and sentence."""
_ANY_ARM = Arm("any", "none")


def judge(statement: Statement, where: str = "") -> list[Violation]:
    """Every rule of the stage `receipt` that is violated."""
    found = list(_subjects(statement))
    for one in _JUDGES:
        found += one(statement.predicate)
    return [Violation(rule, sentence, where) for rule, sentence in found]


def verdict_from(declaration: Declaration, conclusions: tuple[ConclusionRecord, ...]) -> Verdict:
    """The verdict that follows: `checks.model.verdict_of`, from records."""
    check = Check(
        declaration.name,
        "",
        "",
        _ANY_ARM,
        _ANY_ARM,
        tuple(Subcase(one.name, one.asks, one.needs) for one in declaration.subcases),
    )
    return verdict_of(
        check, [Conclusion(one.subcase, one.found, one.why, one.observed) for one in conclusions]
    )


def coverage_from(declaration: Declaration, conclusions: tuple[ConclusionRecord, ...]) -> Coverage:
    """The counts that follow from the conclusions."""
    of = [
        [one.found for one in conclusions if one.subcase == subcase.name] for subcase in declaration.subcases
    ]
    counts = Counter(found[0] for found in of if len(found) == 1)
    return Coverage(
        declared=len(of),
        passed=counts[Found.PASSED],
        failed=counts[Found.FAILED],
        not_run=counts[Found.NOT_SEEN],
        hold=len(of) - counts.total(),
    )


def twice(values: list[str]) -> list[str]:
    """Values that stand more than once, sorted."""
    return sorted(value for value, count in Counter(values).items() if count > 1)


def _subjects(statement: Statement) -> Judged:
    for field, values in (
        ("name", [subject.name for subject in statement.subject]),
        ("digest", [subject.digest.sha256 for subject in statement.subject]),
    ):
        for value in twice(values):
            yield "duplicate_subject", f"subject: the {field} {value} stands twice"


def _declared(predicate: Predicate) -> Judged:
    names = list(predicate.declared_checks)
    if names != sorted(set(names)):
        yield "declared_list", "declared_checks is not sorted or has a check twice"


def _declaration(predicate: Predicate) -> Judged:
    digest = declaration_digest(predicate.check, predicate.arm_variable)
    if predicate.check.digest != digest:
        yield "declaration", f"check.digest is {predicate.check.digest}; its content has {digest}"
    for name in twice([subcase.name for subcase in predicate.check.subcases]):
        yield "subcases", f"check.subcases declares {name} twice"


def _names(thresholds: tuple[Threshold, ...]) -> list[str]:
    return [threshold.name for threshold in thresholds]


def _thresholds(predicate: Predicate) -> Judged:
    used, declared = _names(predicate.thresholds), _names(predicate.check.thresholds)
    if used != declared or declared != sorted(set(declared)):
        yield "thresholds", f"thresholds used are {used}, declared are {declared}, each sorted and once"


def _coverage(predicate: Predicate) -> Judged:
    stated, counted = predicate.coverage, coverage_from(predicate.check, predicate.conclusions)
    total = stated.passed + stated.failed + stated.not_run + stated.hold
    if total != stated.declared:
        yield (
            "coverage_sum",
            f"coverage: passed + failed + not_run + hold is {total}, declared is {stated.declared}",
        )
    elif stated != counted:
        yield "coverage_counts", f"coverage says {_counts(stated)}, the conclusions say {_counts(counted)}"


def _counts(coverage: Coverage) -> str:
    return ", ".join(f"{name} {value}" for name, value in coverage.model_dump().items())


def _verdict(predicate: Predicate) -> Judged:
    idle = [one.subcase for one in predicate.conclusions if one.found is Found.PASSED and not one.observed]
    if predicate.verdict is Verdict.PASS and (idle or not predicate.check.subcases):
        yield (
            "empty_coverage",
            f"verdict is PASS, but nothing was observed of {', '.join(idle) or 'anything'}",
        )
        return
    if predicate.verdict is Verdict.HOLD and predicate.notes:
        return
    follows = verdict_from(predicate.check, predicate.conclusions)
    if predicate.verdict is not follows:
        unsaid = ", and notes does not say why not" if predicate.verdict is Verdict.HOLD else ""
        yield "verdict", f"verdict is {predicate.verdict}; {follows} follows from the conclusions{unsaid}"
    elif follows is Verdict.HOLD:
        yield "verdict", "verdict is HOLD, and notes does not say why"


def _arms(predicate: Predicate) -> Judged:
    off, on = predicate.arms.off, predicate.arms.on
    same = off.arm.model_copy(update={"name": on.arm.name}) == on.arm
    if off.arm.name == on.arm.name or same:
        yield (
            "arm_pair",
            f"arms: {off.arm.name} and {on.arm.name} do not differ in anything that they declare",
        )
    for start in twice([*off.starts, *on.starts]):
        yield "start_ids", f"arms: start {start} counts twice"
    if predicate.verdict in (Verdict.PASS, Verdict.FAIL):
        for side, record in (("off", off), ("on", on)):
            if not record.starts or record.platform is None:
                yield (
                    "arm_not_started",
                    f"arms.{side} has no engine start or facts; verdict is {predicate.verdict}",
                )
    for side, record in (("off", off), ("on", on)):
        if record.platform is not None and len(record.platform.devices) != record.arm.ranks:
            yield (
                "arm_ranks",
                f"arms.{side}: {len(record.platform.devices)} devices for {record.arm.ranks} ranks",
            )
    yield from _platforms(off, on)


def _platforms(off: ArmRecord, on: ArmRecord) -> Judged:
    if off.platform is None or on.platform is None:
        return
    for field in ("engine", "engine_version", "overlay_version"):
        one, other = getattr(off.platform, field), getattr(on.platform, field)
        if one != other:
            yield "arm_platform", f"arms: {field} is {one!r} in arm off and {other!r} in arm on"
    if set(off.platform.devices) != set(on.platform.devices):
        yield "arm_platform", "arms: devices differ between the arms"


def _class(predicate: Predicate) -> Judged:
    platforms = (predicate.arms.off.platform, predicate.arms.on.platform)
    follows = evidence_class(*platforms)
    if predicate.evidence_class is not follows:
        why = next(
            filter(None, map(not_native, platforms)), "both arms ran a supported engine on CUDA devices"
        )
        yield "evidence_class", f"evidence_class is {predicate.evidence_class}; {follows} follows: {why}"


def _window(predicate: Predicate) -> Judged:
    window = predicate.window
    opened, deadline, bound, closed = (
        moment(text) for text in (window.opened, window.submission_deadline, window.hard_bound, window.closed)
    )
    if not opened < deadline <= bound:
        yield "window", "window: opened, submission_deadline and hard_bound do not follow each other"
    elif not opened <= closed <= bound:
        yield "window", f"window: closed {window.closed} is not between opened and hard_bound"


def _evidence(predicate: Predicate) -> Judged:
    for path in twice([file.path for file in predicate.evidence]):
        yield "evidence_duplicate", f"evidence names {path} twice"
    if not predicate.evidence and predicate.verdict in (Verdict.PASS, Verdict.FAIL):
        yield "evidence_none", f"evidence names no file, and the verdict is {predicate.verdict}"


_JUDGES: tuple[Callable[[Predicate], Judged], ...] = (
    _declared,
    _declaration,
    _thresholds,
    _coverage,
    _verdict,
    _arms,
    _class,
    _window,
    _evidence,
)
