"""Deciding again: what checks conclude from the evidence of a verified run, held against what its receipts say.

A signature says who signed and not that it is true.  So before a receipt counts for a promotion, its check judges the
observations that it names once more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ofl.contract import observation_v1 as seen

from qualification.arms.harness import HARNESS_FILE
from qualification.checks.model import Arm, ArmObservations, Check, EvidenceError, Verdict
from qualification.checks.registry import all_checks
from qualification.receipts.canonical import sha256
from qualification.receipts.errors import Violation
from qualification.receipts.files import Files
from qualification.receipts.judge_run import VerifiedReceipt
from qualification.receipts.making import conclusion_record, declaration
from qualification.receipts.statement import ArmRecord, ConclusionRecord
from qualification.receipts.verify import VerifiedRun
from qualification.runs.evidence import EvidenceRefusedError, facts_of, observations_for, read_whole

RULE = "decided_again"
Observed = tuple[seen.Observation, ...]


def decided_otherwise(
    runs: Iterable[VerifiedRun], checks: Sequence[Check] | None = None
) -> Iterator[Violation]:
    """Each PASS or FAIL that does not follow from its evidence.  checks: all of this qualify's where none are given.

    Of a check that this qualify does not ask nothing is said: the gate refuses its receipt for that.
    """
    known = {check.name: check for check in (all_checks() if checks is None else checks)}
    for run in runs:
        files, read = Files(run.root), dict[str, Observed]()
        for receipt in run.receipts:
            said = receipt.predicate
            check = known.get(said.check.name)
            if check is None or declaration(check) != said.check:
                continue
            if said.verdict in (Verdict.PASS, Verdict.FAIL) and (
                wrong := _differs(check, receipt, files, read)
            ):
                yield Violation(RULE, wrong, receipt.where)


def _differs(check: Check, receipt: VerifiedReceipt, files: Files, read: dict[str, Observed]) -> str:
    """What the check says otherwise now; empty where it says the same."""
    if check.decide is None:
        return f"the verdict is {receipt.predicate.verdict}, of a check that cannot run"
    said = receipt.predicate
    thresholds = {threshold.name: threshold.value for threshold in said.thresholds}
    try:
        for file in said.evidence:
            if file.path not in read:
                data = files.read(file.path, file.bytes)
                if sha256(data) != file.sha256:
                    return f"{file.path} was changed since it was verified"
                read[file.path] = read_whole(file.path, data)
        mine = {file.path: read[file.path] for file in said.evidence}
        off = _observations(check.off, said.arms.off, check, mine)
        on = _observations(check.on, said.arms.on, check, mine)
        found = tuple(map(conclusion_record, check.decide(off, on, thresholds)))
    except (EvidenceError, EvidenceRefusedError) as error:
        return f"its evidence cannot be judged: {error}"
    except OSError as error:
        return f"its evidence cannot be read: {error.strerror}"
    except Exception as error:
        # Not narrower: a check that fails to judge has confirmed nothing.
        return f"the check itself failed: {type(error).__name__}: {error}"
    return _other(said.conclusions, found)


def _observations(
    arm: Arm, record: ArmRecord, check: Check, files: Mapping[str, Observed]
) -> ArmObservations:
    """What the runner gave the check of this arm.  Raises EvidenceRefusedError."""
    if len(record.starts) != 1:
        raise EvidenceRefusedError(f"the arm {arm.name} counts {len(record.starts)} starts, and not one")
    of_start = {path: found for path, found in files.items() if facts_of(found).start_id == record.starts[0]}
    harness = [found for path, found in of_start.items() if path.rpartition("/")[2] == HARNESS_FILE]
    ranks = [found for path, found in of_start.items() if path.rpartition("/")[2] != HARNESS_FILE]
    if len(harness) != 1:
        raise EvidenceRefusedError(f"the arm {arm.name} has {len(harness)} files {HARNESS_FILE}, and not one")
    return observations_for(check, arm, ranks, harness[0][1:-1])


def _other(said: Sequence[ConclusionRecord], found: Sequence[ConclusionRecord]) -> str:
    for one, other in zip(said, found, strict=False):
        if one != other:
            return (
                f"{one.subcase} is {one.found} on {one.observed} in the receipt; "
                f"from its evidence {other.subcase} is {other.found} on {other.observed}: {other.why}"
            )
    return (
        "" if len(said) == len(found) else f"{len(said)} conclusions; {len(found)} follow from its evidence"
    )
