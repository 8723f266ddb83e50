"""Runs below a folder: verified ones with their receipts, refused ones with everything that is wrong with them.

The only reader of evidence here.  What it hands on of a file has the digest that a verified receipt states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ofl.contract import observation_v1 as seen

from qualification.receipts import ReceiptError, VerifiedRun, Violation, find_runs, sha256, verify_run
from qualification.receipts.files import Files
from qualification.receipts.judge_run import judge_runs
from qualification.receipts.keys import SSlibKey
from qualification.receipts.run_record import RECEIPTS_FOLDER


@dataclass(frozen=True)
class GatheredRun:
    """One run's folder.  verified: None where anything is wrong with it, and then violations says what.

    claims: names of receipt files of a run that did not verify; what they say is not repeated.
    """

    name: str
    verified: VerifiedRun | None
    violations: tuple[Violation, ...] = ()
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gathered:
    """All runs, and the rules between those that verified."""

    runs: tuple[GatheredRun, ...]
    between: tuple[Violation, ...]

    @property
    def verified(self) -> tuple[VerifiedRun, ...]:
        """Runs of which every rule holds, each by itself."""
        return tuple(run.verified for run in self.runs if run.verified is not None)

    @property
    def refused(self) -> tuple[Violation, ...]:
        """What is wrong with any run."""
        return tuple(violation for run in self.runs for violation in run.violations)


def gather(folder: Path, key: SSlibKey) -> Gathered:
    """The folder, a run's or of runs.  Raises OSError where it cannot be listed."""
    runs = tuple(_gather(root, key) for root in find_runs(folder))
    verified = [run.verified.receipts for run in runs if run.verified is not None]
    return Gathered(runs, tuple(judge_runs(verified)))


def observations_of(run: VerifiedRun) -> dict[str, list[Sequence[seen.Observation]]]:
    """Observations by engine start, a list per file.  A file that is not what it was when it verified is left out."""
    files = {file.path: file for receipt in run.receipts for file in receipt.predicate.evidence}
    reader = Files(run.root)
    found: dict[str, list[Sequence[seen.Observation]]] = {}
    for path, stated in sorted(files.items()):
        try:
            data = reader.read(path, stated.bytes)
        except OSError:
            continue
        if sha256(data) != stated.sha256:
            continue
        lines = _lines(data)
        facts = lines[0].record if lines else None
        if isinstance(facts, seen.Facts):
            found.setdefault(facts.start_id, []).append(lines)
    return found


def _gather(root: Path, key: SSlibKey) -> GatheredRun:
    try:
        return GatheredRun(root.name, verify_run(root, key))
    except ReceiptError as error:
        return GatheredRun(root.name, None, error.violations, _claims(root))


def _claims(root: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in (root / RECEIPTS_FOLDER).iterdir()))
    except OSError:
        return ()


def _lines(data: bytes) -> list[seen.Observation]:
    """The file's lines; none where any of them is no observation, as in files of other kinds."""
    try:
        return [seen.read_line(line) for line in data.splitlines(keepends=True)]
    except seen.ObservationError:
        return []
