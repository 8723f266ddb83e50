"""Evidence of a run, read back: whole files of exactly the starts that count, as the ledger says they were.

Raises EvidenceRefusedError on anything else: files of another start, from before the run, changed since, or that nobody
knows.  Nothing is spliced: an arm's observations are those of one start.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ofl.contract import observation_v1 as seen

from qualification.arms.harness import HARNESS_FILE
from qualification.checks.model import Arm, ArmObservations, Check
from qualification.receipts.canonical import sha256
from qualification.receipts.fields import File
from qualification.receipts.run_record import LEDGER_FILE, RECEIPTS_FOLDER, RUN_FILE, files_of, strays_of
from qualification.runs.declared import Side, arm_of
from qualification.runs.ledger import Entry, of_kind
from qualification.runs.side import counting_start


class EvidenceRefusedError(Exception):
    """Evidence that is not this run's own; one sentence."""


@dataclass(frozen=True)
class ArmEvidence:
    """One start of an arm.

    start: the runner's name for it.  facts: by rank.  files: of the start.  left_out: checks not begun, and why.
    """

    arm: Arm
    start: str
    facts: tuple[seen.Facts, ...]
    ranks: tuple[tuple[seen.Observation, ...], ...]
    harness: tuple[seen.Observation, ...]
    files: tuple[File, ...]
    left_out: Mapping[str, str]

    def of(self, check: Check) -> ArmObservations:
        """What a check's `decide` gets of it."""
        return observations_for(check, self.arm, self.ranks, self.harness)


def load_side(
    root: Path, entries: Sequence[Entry], checks: Sequence[Check], side: Side
) -> dict[str, ArmEvidence]:
    """The evidence of each arm of a side, by the arm's name.  Raises EvidenceRefusedError."""
    found: dict[str, ArmEvidence] = {}
    for check in checks:
        arm = arm_of(check, side)
        start = counting_start(entries, side, arm.name)
        if arm.name in found or check.drive is None or check.missing:
            continue
        if start is None:
            raise EvidenceRefusedError(f"{side.upper()}, arm {arm.name}: no start of it has ended in order.")
        found[arm.name] = _load(root, entries, arm, start)
    return found


def refuse_strangers(root: Path, entries: Sequence[Entry]) -> None:
    """Raises EvidenceRefusedError on a file that this run did not make."""
    for path in strays_of(root):
        raise EvidenceRefusedError(f"{path}: the run did not make this, and it is no regular file.")
    known = {entry["path"] for entry in of_kind(entries, "evidence")}
    starts = {entry["start"]: entry for entry in of_kind(entries, "start")}
    for path in files_of(root):
        if path in known or path in (RUN_FILE, LEDGER_FILE) or path.startswith(f"{RECEIPTS_FOLDER}/"):
            continue
        parts = path.split("/")
        if len(parts) == 5 and parts[0] == "arms" and parts[3] in starts and not _ended(entries, parts[3]):
            continue  # of a start that was abandoned: it is named, and it does not count
        raise EvidenceRefusedError(f"{path}: the run did not make this file.")


def _ended(entries: Sequence[Entry], start: str) -> bool:
    return any(of_kind(entries, "ended", start=start))


def _load(root: Path, entries: Sequence[Entry], arm: Arm, start: str) -> ArmEvidence:
    (ready,) = of_kind(entries, "ready", start=start)
    files, contents = [], {}
    for entry in of_kind(entries, "evidence", start=start):
        path, data = entry["path"], _read(root, entry["path"])
        if (len(data), sha256(data)) != (entry["bytes"], entry["sha256"]):
            raise EvidenceRefusedError(f"{path}: the file is not as it was when its start ended.")
        files.append(File(path=path, bytes=len(data), sha256=entry["sha256"]))
        contents[path.rpartition("/")[2]] = _of_start(path, read_whole(path, data), ready["start_id"])
    harness = contents.pop(HARNESS_FILE, None)
    if harness is None:
        raise EvidenceRefusedError(f"start {start}: there is no {HARNESS_FILE}.")
    ranks = sorted(contents.values(), key=lambda observations: facts_of(observations).rank)
    facts = tuple(facts_of(observations) for observations in ranks)
    if [one.rank for one in facts] != list(range(arm.ranks)):
        raise EvidenceRefusedError(
            f"start {start}: files of ranks {[one.rank for one in facts]}, and the arm has {arm.ranks}."
        )
    left_out = {entry["check"]: entry["why"] for entry in of_kind(entries, "not_begun", start=start)}
    return ArmEvidence(arm, start, facts, tuple(ranks), harness[1:-1], tuple(files), left_out)


def read_whole(path: str, data: bytes) -> tuple[seen.Observation, ...]:
    """A whole file, `Facts` to `Closed`.  Raises EvidenceRefusedError."""
    try:
        found = tuple(seen.read_line(line) for line in data.splitlines(keepends=True))
    except seen.ObservationError as error:
        raise EvidenceRefusedError(f"{path}: a line cannot be read: {error}.") from None
    if not found or not isinstance(found[0].record, seen.Facts):
        raise EvidenceRefusedError(f"{path}: the file does not begin with facts.")
    if not isinstance(found[-1].record, seen.Closed):
        raise EvidenceRefusedError(f"{path}: the file has no end: its process did not end by itself.")
    return found


def _of_start(
    path: str, observations: tuple[seen.Observation, ...], start_id: str
) -> tuple[seen.Observation, ...]:
    found = facts_of(observations).start_id
    if found != start_id:
        raise EvidenceRefusedError(f"{path}: it is of the start {found!r}, not {start_id!r}.")
    return observations


def facts_of(observations: Sequence[seen.Observation]) -> seen.Facts:
    """The facts that a whole file begins with, as `read_whole` saw."""
    facts = observations[0].record
    assert isinstance(facts, seen.Facts), "looked at before"
    return facts


def observations_for(
    check: Check,
    arm: Arm,
    ranks: Iterable[Sequence[seen.Observation]],
    harness: Iterable[seen.Observation],
) -> ArmObservations:
    """What a check's `decide` gets of an arm.  ranks: whole files, in any order.  harness: between facts and end."""
    mine = tuple(each for each in harness if _is_of(each.record, check))
    return ArmObservations(arm, tuple(sorted(ranks, key=lambda found: facts_of(found).rank)), mine)


def _is_of(record: seen.Record, check: Check) -> bool:
    """Whether a record of the harness is of a check."""
    if isinstance(record, seen.Case):
        return record.check == check.name
    return isinstance(record, seen.Completed) and record.request.startswith(check.requests)


def _read(root: Path, path: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise EvidenceRefusedError(f"{path} cannot be read: {error.strerror}.") from None
