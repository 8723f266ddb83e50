"""The gate: may exactly these subjects be promoted under this policy, by these receipts?  Pure; it reads no file.

It promotes where nothing holds it back, and says one line for each thing that does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from qualification.checks.model import Check, Verdict
from qualification.checks.registry import all_checks
from qualification.policy import Limit, PlatformRule, Policy
from qualification.receipts.canary import BlindError, specimen
from qualification.receipts.errors import Violation, printable
from qualification.receipts.fields import NO_DIGEST, ArmDeclaration
from qualification.receipts.judge_run import VerifiedReceipt, judge_runs
from qualification.receipts.making import declaration
from qualification.receipts.platforms import arm_declaration
from qualification.receipts.statement import EvidenceClass, Platform, Predicate, Subject
from qualification.receipts.verify import VerifiedRun
from qualification.stated import contradictions
from qualification.subjects import SUBJECTS_FORMAT, SubjectsFile


@dataclass(frozen=True)
class Held:
    """One thing that holds the promotion.  about: a check, "subjects", "platform" or a run."""

    about: str
    sentence: str

    def __str__(self) -> str:
        return printable(f"hold: {self.about}: {self.sentence}")


@dataclass(frozen=True)
class Judged:
    """A required check.  receipt: that it was judged by; None where there is none."""

    check: str
    receipt: VerifiedReceipt | None
    held: bool


@dataclass(frozen=True)
class Judgement:
    """held: empty means promote.  checks: one per required check, in the policy's order."""

    policy: str
    held: tuple[Held, ...]
    checks: tuple[Judged, ...]


@dataclass(frozen=True)
class Known:
    """A check as this qualify asks it: the digest of its declaration, and its arms."""

    digest: str
    off: ArmDeclaration
    on: ArmDeclaration


def known_checks(checks: Iterable[Check] | None = None) -> dict[str, Known]:
    """By name; every check of this qualify where none are given."""
    return {
        check.name: Known(declaration(check).digest, arm_declaration(check.off), arm_declaration(check.on))
        for check in (all_checks() if checks is None else checks)
    }


def judge_gate(
    policy: Policy,
    subjects: SubjectsFile,
    runs: Sequence[VerifiedRun],
    refused: Sequence[Violation] = (),
    *,
    known: Mapping[str, Known],
) -> Judgement:
    """refused: what verification said of runs that did not verify; each is a reason to hold.

    known: `known_checks()`, since a check that asked less, or of other arms, is another check.
    """
    receipts = [receipt for run in runs for receipt in run.receipts]
    between = judge_runs([run.receipts for run in runs])
    held = [Held("evidence", str(violation)) for violation in (*refused, *between)]
    held += _required_kinds(policy, subjects)
    checks = []
    chosen: list[VerifiedReceipt] = []
    for check in policy.required_checks:
        of_check = [receipt for receipt in receipts if receipt.predicate.check.name == check]
        receipt, reasons = _judge_check(policy, subjects, of_check, known)
        checks.append(Judged(check, receipt, bool(reasons)))
        held += [Held(check, reason) for reason in reasons]
        if receipt is not None:
            chosen.append(receipt)
            held += _differences(subjects, receipt)
    held += _one_platform(chosen)
    return Judgement(policy.name, tuple(dict.fromkeys(held)), tuple(checks))


def watch_gate(policy: Policy) -> None:
    """Have the gate judge what it must hold.  Raises BlindError where it would promote."""
    statement = specimen()
    said = statement.predicate
    known = {said.check.name: Known(said.check.digest, said.arms.off.arm, said.arms.on.arm)}
    asked = policy.model_copy(update={"required_checks": (statement.predicate.check.name,), "thresholds": ()})
    subjects = SubjectsFile(format=SUBJECTS_FORMAT, subjects=statement.subject)
    if not judge_gate(asked, subjects, [], known=known).held:
        raise BlindError("the gate is blind: it would promote without any receipt")
    receipt = VerifiedReceipt(statement, NO_DIGEST)
    if not _judge_check(asked, subjects, [receipt], known)[1]:
        raise BlindError("the gate is blind: it would promote by a rehearsal that failed")


def _required_kinds(policy: Policy, subjects: SubjectsFile) -> Iterator[Held]:
    kinds = {subject.kind for subject in subjects.subjects}
    for kind in policy.required_subjects:
        if kind not in kinds:
            yield Held(
                "subjects", f"the policy requires a subject of kind {kind}, and the subjects file has none"
            )


def _judge_check(
    policy: Policy, subjects: SubjectsFile, receipts: Sequence[VerifiedReceipt], known: Mapping[str, Known]
) -> tuple[VerifiedReceipt | None, list[str]]:
    """The receipt that a check is judged by, and why it does not do.

    Of those about exactly these subjects the newest that does, else the newest; a newer one that is no PASS holds.
    """
    if not receipts:
        return None, ["no receipt"]
    exact = [one for one in receipts if not list(_differences(subjects, one))]
    newest_first = sorted(exact or receipts, key=lambda one: one.counter, reverse=True)
    for index, receipt in enumerate(newest_first):
        if exact and not list(_reasons(policy, receipt, known)):
            newer = [one for one in newest_first[:index] if one.predicate.verdict is not Verdict.PASS]
            return receipt, [
                f"run {one.predicate.run_id} has a newer receipt that says {one.predicate.verdict}"
                for one in newer
            ]
    reasons = list(_reasons(policy, newest_first[0], known))
    return newest_first[0], reasons if exact else [*reasons, "no receipt is about exactly these subjects"]


def _reasons(policy: Policy, receipt: VerifiedReceipt, known: Mapping[str, Known]) -> Iterator[str]:
    predicate = receipt.predicate
    if predicate.verdict is not Verdict.PASS:
        why = [f"{one.subcase}: {one.why}" for one in predicate.conclusions if one.found != "passed"]
        yield f"verdict is {predicate.verdict}: " + (
            "; ".join(why) or "; ".join(predicate.notes) or "nothing was seen"
        )
    if predicate.evidence_class is not EvidenceClass.NATIVE:
        yield f"evidence is a {predicate.evidence_class}, not {policy.evidence_class}"
    if receipt.counter < policy.minimum_counter:
        yield f"counter {receipt.counter} is below {policy.minimum_counter}, the least that the policy accepts"
    yield from _asked(predicate, known.get(predicate.check.name))
    limits = [limit for limit in policy.thresholds if limit.check == predicate.check.name]
    used = {threshold.name: threshold.value for threshold in predicate.thresholds}
    for limit in limits:
        yield from _looser(limit, used.get(limit.name))
    bounded = {limit.name for limit in limits}
    for declared in predicate.check.thresholds:
        value = used[declared.name]
        if declared.name not in bounded and value != declared.value:
            own = f"{value:g}, not the check's {declared.value:g}"
            yield f"threshold {declared.name} was {own}, and the policy bounds it not"
    yield from contradictions(receipt)
    for side, record in (("off", predicate.arms.off), ("on", predicate.arms.on)):
        if record.platform is not None:
            for sentence in _elsewhere(policy.platform, record.platform):
                yield f"arm {side}: {sentence}"


def _asked(predicate: Predicate, asked: Known | None) -> Iterator[str]:
    if asked is None or predicate.check.digest != asked.digest:
        wanted = "no such check" if asked is None else asked.digest
        yield f"check.digest is {predicate.check.digest}; this qualify asks {wanted}"
        return
    for side, record, arm in (
        ("off", predicate.arms.off.arm, asked.off),
        ("on", predicate.arms.on.arm, asked.on),
    ):
        if record != arm:
            yield f"arms.{side} is {_arm(record)}; this qualify asks for {_arm(arm)}"


def _arm(arm: ArmDeclaration) -> str:
    settings = ", ".join(f"{one.name}={one.value}" for one in arm.settings) or "no settings"
    return f"{arm.name!r} ({arm.speculation}, {arm.ranks} ranks, {settings})"


def _looser(limit: Limit, used: float | None) -> Iterator[str]:
    if used is None:
        yield f"threshold {limit.name} is required by the policy and was not used"
    elif limit.at_least is not None and used < limit.at_least:
        yield f"threshold {limit.name} was {used:g}; the policy asks for at least {limit.at_least:g}"
    elif limit.at_most is not None and used > limit.at_most:
        yield f"threshold {limit.name} was {used:g}; the policy asks for at most {limit.at_most:g}"


def _elsewhere(rule: PlatformRule, platform: Platform) -> Iterator[str]:
    release = platform.engine_version.partition("+")[0]
    if platform.engine != rule.engine or release not in rule.engine_versions:
        asked = f"{rule.engine} {' or '.join(rule.engine_versions)}"
        yield f"engine is {platform.engine} {platform.engine_version}; the policy asks for {asked}"
    for device in dict.fromkeys(device.device for device in platform.devices):
        if device not in rule.devices:
            yield f"device is {device!r}; the policy asks for {' or '.join(rule.devices)}"
    if len(platform.devices) not in rule.ranks:
        asked = " or ".join(map(str, rule.ranks))
        yield f"it has {len(platform.devices)} ranks; the policy asks for {asked}"
    if platform.transport and platform.transport not in rule.transports:
        yield f"transport is {platform.transport!r}; the policy asks for {' or '.join(rule.transports)}"


def _differences(subjects: SubjectsFile, receipt: VerifiedReceipt) -> Iterator[Held]:
    wanted = {subject.name: subject for subject in subjects.subjects}
    seen = {subject.name: subject for subject in receipt.statement.subject}
    run = receipt.predicate.run_id
    for name in sorted(wanted.keys() | seen.keys()):
        if wanted.get(name) != seen.get(name):
            asked, judged = _digest(wanted.get(name)), _digest(seen.get(name))
            yield Held("subjects", f"{name}: to be promoted is {asked}; run {run} judged {judged}")


def _digest(subject: Subject | None) -> str:
    return "none" if subject is None else subject.digest.sha256


def _one_platform(receipts: Sequence[VerifiedReceipt]) -> Iterator[Held]:
    """Receipts do not travel between platforms, so those that count together are of one."""
    seen = {
        (arm.platform.engine, arm.platform.engine_version, arm.platform.overlay_version, device)
        for receipt in receipts
        for arm in (receipt.predicate.arms.off, receipt.predicate.arms.on)
        if arm.platform is not None
        for device in arm.platform.devices
    }
    if len(seen) > 1:
        each = sorted(
            f"{engine} {version}, overlay {overlay or 'none'}, {device.device}, driver {device.driver or 'none'}"
            for engine, version, overlay, device in seen
        )
        yield Held("platform", f"receipts are of several: {'; '.join(each)}")
