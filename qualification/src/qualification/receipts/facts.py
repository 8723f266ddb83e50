"""Whether the evidence says of the engines what the receipt does: the first line of each file of observations.

So nobody can sign a platform that the engine's own hooks did not state.
"""

from collections.abc import Sequence

from ofl.contract.observation_v1 import Facts, ObservationError, read_line

from qualification.checks.model import Arm
from qualification.receipts.errors import Violation
from qualification.receipts.files import Files
from qualification.receipts.platforms import FactsError, arm_record
from qualification.receipts.statement import ArmRecord, Predicate

LINE_BYTES_MAX = 64 * 1024
"""No line of facts comes near it."""


def judge_facts(predicate: Predicate, files: Files, where: str = "") -> list[Violation]:
    """Violations of `facts`.  To be asked only of a receipt whose arms and evidence violate nothing."""
    if not predicate.evidence:
        return []
    seen = [found for file in predicate.evidence if (found := _facts(file.path, files)) is not None]
    sides = (("off", predicate.arms.off), ("on", predicate.arms.on))
    said = [(side, _difference(record, seen)) for side, record in sides if record.starts]
    return [Violation("facts", f"arms.{side}: {sentence}", where) for side, sentence in said if sentence]


def _facts(path: str, files: Files) -> Facts | None:
    """Of a file of observations; None where it is none, or was changed since it was measured."""
    try:
        line, newline, _ = files.read(path, LINE_BYTES_MAX).partition(b"\n")
        record = read_line(line + newline).record
    except (OSError, ObservationError):
        return None
    return record if isinstance(record, Facts) else None


def _difference(record: ArmRecord, seen: Sequence[Facts]) -> str:
    """What differs, in a sentence; empty where nothing does."""
    settings = {setting.name: setting.value for setting in record.arm.settings}
    arm = Arm(record.arm.name, record.arm.speculation, record.arm.ranks, settings)
    # A start's harness repeats the facts of rank 0 in its own file.
    mine = list(dict.fromkeys(facts for facts in seen if facts.start_id in record.starts))
    try:
        found = arm_record(arm, mine)
    except FactsError as error:
        return f"its evidence contradicts itself: {error}"
    if unseen := sorted(set(record.starts) - set(found.starts)):
        return f"no evidence is of the start {unseen[0]}"
    if found.platform != record.platform:
        return f"platform is not what its evidence says in {_field(found, record)}"
    return ""


def _field(found: ArmRecord, record: ArmRecord) -> str:
    one, other = (made.platform.model_dump() if made.platform else {} for made in (found, record))
    return next((name for name in one if one[name] != other.get(name)), "everything")
