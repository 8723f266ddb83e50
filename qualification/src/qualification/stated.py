"""What engines stated of themselves against what a receipt says was judged: subjects by version, who drafts.  Pure.

No engine states digests, so for those whoever signs has to be believed; a wrong version or a wrong arm is told here.
"""

from collections.abc import Iterable, Iterator

from qualification.receipts.fields import ArmDeclaration
from qualification.receipts.judge_run import VerifiedReceipt
from qualification.receipts.platforms import DRAFTS_UNDER
from qualification.receipts.statement import Platform

_OVERLAY_WHEEL = "spark_overlay-"


def contradictions(receipt: VerifiedReceipt) -> Iterator[str]:
    """A sentence for each thing that an arm's engine stated otherwise."""
    for side, record in (("off", receipt.predicate.arms.off), ("on", receipt.predicate.arms.on)):
        if record.platform is not None:
            for sentence in (
                *_other_versions(receipt.subjects, record.platform),
                *_other_drafting(record.arm, record.platform),
            ):
                yield f"arm {side}: {sentence}"


def _other_versions(subjects: Iterable[str], platform: Platform) -> Iterator[str]:
    engine = f"{platform.engine} {platform.engine_version}"
    for name in subjects:
        kind, _, own = name.partition(":")
        if kind == "engine" and not _same_version(own, engine):
            yield f"engine is {engine}; the subject is {name}"
        if kind == "wheel" and own.startswith(_OVERLAY_WHEEL):
            version = own.removeprefix(_OVERLAY_WHEEL).partition("-")[0]
            if not _same_version(version, platform.overlay_version):
                yield f"overlay is {platform.overlay_version or 'none'}; the subject is {name}"


def _same_version(one: str, other: str) -> bool:
    """Local parts are compared where both have one: engines may leave theirs out."""
    (release, _, local), (other_release, _, other_local) = one.partition("+"), other.partition("+")
    return release == other_release and (not local or not other_local or local == other_local)


def _other_drafting(arm: ArmDeclaration, platform: Platform) -> Iterator[str]:
    policy = DRAFTS_UNDER.get(arm.speculation, "")
    if platform.policy != policy:
        yield f"overlay's policy is {platform.policy or 'none'}; the arm {arm.name} is of {policy or 'none'}"
    if policy and not platform.transport:
        yield f"transport is none; the arm {arm.name} drafts remotely"
    elif platform.transport and not policy:
        yield f"transport is {platform.transport!r}; nothing in the arm {arm.name} drafts remotely"
