"""Words of the page: what was gathered, as rows and sentences.  Pure; decides nothing that receipts or gate do not say.

A verdict is shown only of a run that verified; any other run's checks are shown as "not verified".
"""

from collections.abc import Mapping, Sequence

from qualification.checks.model import Check, Found, Verdict
from qualification.gate import Judgement
from qualification.receipts import VerifiedReceipt, VerifiedRun, Violation
from qualification.receipts.platforms import not_native
from qualification.receipts.rules import BY_ID
from qualification.receipts.statement import ArmRecord, EvidenceClass
from qualification.review.gather import Gathered, GatheredRun
from qualification.review.parts import (
    NO_RECEIPT,
    UNVERIFIED,
    ArmRow,
    Broken,
    Cell,
    MatrixRow,
    ReceiptPart,
    RunPart,
    SubcaseRow,
    SubjectRow,
)

FOUND_WORDS = {Found.PASSED: "passed", Found.FAILED: "failed", Found.NOT_SEEN: "not seen"}
FOUND_LOOKS = {Found.PASSED: "pass", Found.FAILED: "fail", Found.NOT_SEEN: "notrun"}


def matrix(gathered: Gathered, checks: Sequence[Check]) -> tuple[MatrixRow, ...]:
    """Each check that is known or that a verified run declares."""
    asks = {check.name: check.asks for check in checks}
    declared = {name for run in gathered.verified for name in run.record.declared_checks}
    return tuple(
        MatrixRow(name, asks.get(name, ""), tuple(_cell(run, name) for run in gathered.runs))
        for name in sorted(asks.keys() | declared)
    )


def run_part(run: GatheredRun, number: int, checks: Sequence[Check]) -> RunPart:
    """number: of the run in the page, for anchors."""
    asks = {check.name: check.asks for check in checks}
    violations = _broken(run.violations)
    anchor = f"run-{number}"
    if run.verified is None:
        return RunPart(run.name, anchor, False, violations, len(run.claims), UNVERIFIED, "", (), (), ())
    receipts = run.verified.receipts
    word = " and ".join(sorted(_classes(receipts))) or str(EvidenceClass.REHEARSAL)
    arms = _arms(run.verified)
    why = next((arm.not_native for arm in arms if arm.not_native), "")
    return RunPart(
        name=run.name,
        anchor=anchor,
        verified=True,
        violations=violations,
        claims=0,
        evidence_class=word,
        why_class=why,
        facts=_facts(run.verified),
        receipts=tuple(_receipt(receipt, anchor, asks) for receipt in receipts),
        arms=arms,
    )


def not_run(gathered: Gathered) -> tuple[tuple[str, str, str], ...]:
    """Run, check and why, of every NOT RUN and HOLD in verified runs."""
    found = []
    for run in gathered.verified:
        for receipt in run.receipts:
            predicate = receipt.predicate
            if predicate.verdict in (Verdict.NOT_RUN, Verdict.HOLD):
                unseen = [one for one in predicate.conclusions if one.found is Found.NOT_SEEN]
                reasons = list(dict.fromkeys([*predicate.notes, *(one.why for one in unseen)]))
                found.append(
                    (run.record.run_id, predicate.check.name, " ".join(reasons) or "No reason was given.")
                )
    return tuple(found)


def conflicts(gathered: Gathered) -> tuple[tuple[str, str], ...]:
    """What contradicts, between runs and within them: a heading and a sentence."""
    between = [(violation.rule, violation.sentence) for violation in gathered.between]
    held = [
        (f"{receipt.predicate.check.name}, run {run.record.run_id}", " ".join(receipt.predicate.notes))
        for run in gathered.verified
        for receipt in run.receipts
        if receipt.predicate.verdict is Verdict.HOLD
    ]
    return (*between, *held)


def subject_rows(
    qualified: Mapping[str, str], other: Mapping[str, str], other_word: str
) -> tuple[SubjectRow, ...]:
    """What differs between what receipts are about and another set.  other: empty where none was given."""
    rows = []
    for name in sorted(qualified.keys() | other.keys()):
        ours, theirs = qualified.get(name, ""), other.get(name, "")
        word, look = _difference(ours, theirs, other_word) if other else ("", "")
        rows.append(SubjectRow(name, word, look, ours, theirs))
    return tuple(rows)


def verdict_of_page(gathered: Gathered, judgement: Judgement | None) -> tuple[str, str, tuple[str, ...]]:
    """The page's own headline: a word, its look, and sentences.  Never more than gate and verification say."""
    bad = [run.name for run in gathered.runs if run.verified is None]
    sentences = []
    if not gathered.runs:
        return "NOTHING TO REVIEW", "bad", ("There is no run below the given folder.",)
    if bad or gathered.between:
        sentences.append(
            f"{len(bad)} of {len(gathered.runs)} runs do not verify; no verdict of theirs is shown."
        )
        if gathered.between:
            sentences.append("Runs that verify contradict each other.")
        return "NOT VERIFIED", "bad", tuple(sentences)
    if judgement is None:
        return "VERIFIED, NOT JUDGED", "notrun", ("No policy was given, so nothing here says promote.",)
    if judgement.held:
        return (
            "HOLD",
            "fail",
            (f"Policy {judgement.policy}: {len(judgement.held)} things hold the promotion.",),
        )
    return "PROMOTE", "pass", (f"Policy {judgement.policy}: nothing holds the promotion.",)


def _cell(run: GatheredRun, name: str) -> Cell:
    if run.verified is None:
        return Cell(UNVERIFIED, "the run does not verify")
    receipt = next((one for one in run.verified.receipts if one.predicate.check.name == name), None)
    if receipt is None:
        return Cell(NO_RECEIPT, "the run did not declare it")
    predicate = receipt.predicate
    counts = predicate.coverage
    detail = f"{predicate.evidence_class}; {counts.passed} of {counts.declared} subcases passed"
    detail += f", {counts.failed} failed" if counts.failed else ""
    return Cell(str(predicate.verdict), detail, _anchor(run.verified, receipt))


def _anchor(run: VerifiedRun, receipt: VerifiedReceipt) -> str:
    return f"receipt-{run.record.run_id}-{receipt.counter}"


def _broken(violations: Sequence[Violation]) -> tuple[Broken, ...]:
    """Every violation, by rule; what was said of several files stands once, with all of them."""
    by_rule: dict[str, dict[str, list[str]]] = {}
    for violation in violations:
        places = by_rule.setdefault(violation.rule, {}).setdefault(violation.sentence, [])
        if violation.where:
            places.append(violation.where)
    return tuple(
        Broken(
            rule,
            BY_ID[rule].holds if rule in BY_ID else "",
            tuple((sentence, tuple(places)) for sentence, places in said.items()),
        )
        for rule, said in by_rule.items()
    )


def held_by(judgement: Judgement | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What holds the promotion, by what it is about."""
    by_about: dict[str, list[str]] = {}
    for held in judgement.held if judgement is not None else ():
        by_about.setdefault(held.about, []).append(held.sentence)
    return tuple((about, tuple(sentences)) for about, sentences in by_about.items())


def _classes(receipts: Sequence[VerifiedReceipt]) -> set[EvidenceClass]:
    """Of receipts whose arms started: one that could not run is no evidence of either class."""
    pairs = [(receipt.predicate, receipt.predicate.arms) for receipt in receipts]
    return {
        said.evidence_class
        for said, arms in pairs
        if arms.off.platform is not None and arms.on.platform is not None
    }


def _facts(run: VerifiedRun) -> tuple[tuple[str, str], ...]:
    record, counters = run.record, [receipt.counter for receipt in run.receipts]
    window = run.receipts[0].predicate.window
    return (
        ("Run", record.run_id),
        ("Platform, as named", record.platform),
        ("By", f"qualify {record.tool_version}"),
        ("Signed by the key", run.key_id),
        ("Started", record.started),
        ("Window opened", window.opened),
        ("Submissions until", window.submission_deadline),
        ("Hard bound", window.hard_bound),
        ("Closed", max(receipt.predicate.window.closed for receipt in run.receipts)),
        ("Counters", f"{min(counters)} to {max(counters)}"),
        ("Receipts", str(len(counters))),
        ("Evidence files", str(len({file.path for one in run.receipts for file in one.predicate.evidence}))),
    )


def _receipt(receipt: VerifiedReceipt, anchor: str, asks: Mapping[str, str]) -> ReceiptPart:
    predicate = receipt.predicate
    declared = {subcase.name: subcase for subcase in predicate.check.subcases}
    rows = tuple(
        SubcaseRow(
            one.subcase,
            declared[one.subcase].asks if one.subcase in declared else "It was not declared.",
            declared[one.subcase].needs if one.subcase in declared else "",
            FOUND_WORDS[one.found],
            FOUND_LOOKS[one.found],
            one.why,
            one.observed,
        )
        for one in predicate.conclusions
    )
    return ReceiptPart(
        anchor=f"receipt-{predicate.run_id}-{receipt.counter}",
        check=predicate.check.name,
        asks=asks.get(predicate.check.name, ""),
        cell=Cell(str(predicate.verdict), str(predicate.evidence_class)),
        arm_variable=predicate.arm_variable,
        off=_arm_words(predicate.arms.off),
        on=_arm_words(predicate.arms.on),
        subcases=rows,
        notes=predicate.notes,
        thresholds=tuple(f"{threshold.name} = {threshold.value:g}" for threshold in predicate.thresholds),
        counter=predicate.counter,
        digest=receipt.digest,
        evidence=tuple((file.path, file.bytes, file.sha256) for file in predicate.evidence),
    )


def _arm_words(record: ArmRecord) -> str:
    ranks = "1 rank" if record.arm.ranks == 1 else f"{record.arm.ranks} ranks"
    return f"{record.arm.name} ({record.arm.speculation}, {ranks})"


def _arms(run: VerifiedRun) -> tuple[ArmRow, ...]:
    found: dict[tuple[str, str], ArmRow] = {}
    for receipt in run.receipts:
        pair = receipt.predicate.arms
        for side, record in (("OFF", pair.off), ("ON", pair.on)):
            if record.platform is not None:
                found.setdefault((side, record.arm.name), _arm(side, record))
    return tuple(found[key] for key in sorted(found))


def _arm(side: str, record: ArmRecord) -> ArmRow:
    platform = record.platform
    assert platform is not None, "an arm that started"
    devices = (
        ", ".join(filter(None, (each.device, each.capability, each.driver and f"driver {each.driver}")))
        for each in platform.devices
    )
    return ArmRow(
        side=side,
        name=record.arm.name,
        speculation=record.arm.speculation,
        ranks=record.arm.ranks,
        settings=tuple(f"{setting.name}={setting.value}" for setting in record.arm.settings),
        engine=f"{platform.engine} {platform.engine_version}, overlay {platform.overlay_version}",
        devices="; ".join(devices),
        transport=platform.transport or "none",
        starts=record.starts,
        not_native=not_native(platform),
    )


def _difference(ours: str, theirs: str, other_word: str) -> tuple[str, str]:
    if not theirs:
        return f"not in {other_word}", "hold"
    if not ours:
        return f"only in {other_word}", "fail"
    return ("same", "pass") if ours == theirs else ("differs", "fail")
