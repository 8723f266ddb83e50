"""The folder of a run: `RUN.partial` while it is made, `RUN` once it is published, `complete.json` in it last.

Owns what is on the disk when.  Whatever kills the runner leaves a folder without `complete.json`, or one that disagrees
with it; verification calls both incomplete.  Logs are no evidence: they lie in another folder, `logs_of`.
"""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ofl import files
from ofl.contract.observation_v1 import Blind, parse_key
from pydantic import ValidationError

from qualification import __version__
from qualification.checks.model import Check
from qualification.receipts.canonical import field_violations, read_model, sha256, to_bytes
from qualification.receipts.envelope import COMPLETE_TYPE, seal
from qualification.receipts.errors import ReceiptError
from qualification.receipts.fields import U64_MAX
from qualification.receipts.keys import CryptoSigner
from qualification.receipts.platforms import arm_declaration
from qualification.receipts.run_record import (
    BLINDING,
    COMPLETE_FILE,
    LEDGER_FILE,
    RUN_FILE,
    RUN_FORMAT,
    RunRecord,
    complete_record,
)
from qualification.receipts.verify import find_runs
from qualification.runs.declared import distinct_arms
from qualification.runs.disk import sync, utc
from qualification.runs.ledger import Entry, Ledger, of_kind
from qualification.runs.platform import Platform
from qualification.runs.window import Limits, Window, WindowError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PARTIAL = ".partial"
KEY_FILE_BYTES_MAX = 1024
"""Of the blinding key's file: 64 hexadecimal digits and blanks around them."""


class RunError(Exception):
    """The run cannot begin, go on or be published; one sentence."""


@dataclass
class Run:
    """A run that is being made.  key: the blinding key, which no file of the run may hold."""

    root: Path
    logs: Path
    record: RunRecord
    ledger: Ledger
    window: Window
    key: bytes

    @property
    def run_id(self) -> str:
        """Its name."""
        return self.record.run_id

    def close(self) -> None:
        """Nothing is written any more."""
        self.ledger.close()


def logs_of(evidence: Path, run_id: str) -> Path:
    """Where a run's logs and scratch files lie."""
    return evidence.with_name(f"{evidence.name}.logs") / run_id


def begin(
    evidence: Path,
    run_id: str,
    platform: Platform,
    checks: Sequence[Check],
    limits: Limits,
    key: bytes,
    counter_first: int | None = None,
) -> Run:
    """A new run, its window open.  Raises RunError where anything of that name is there, and LedgerError.

    counter_first: of its receipts; None: the first that no other run in the evidence has or may still use.
    """
    root, logs = evidence / f"{run_id}{PARTIAL}", logs_of(evidence, run_id)
    for place in (evidence / run_id, root, logs):
        if place.exists():
            raise RunError(f"{place} is there already: a run is never made twice under one name.")
    least = next_counter(evidence)
    if counter_first is not None and counter_first < least:
        raise RunError(
            f"counter {counter_first} is another run's in {evidence}: receipts there begin at {least} from here on."
        )
    record = _declared(run_id, platform, checks, limits, counter_first or least)
    evidence.mkdir(parents=True, exist_ok=True)
    root.mkdir()
    logs.mkdir(mode=0o700, parents=True)
    publish_file(root / RUN_FILE, to_bytes(record))
    ledger = Ledger(root / LEDGER_FILE)
    window = Window(limits)
    ledger.append(
        "run",
        run=run_id,
        record=sha256((root / RUN_FILE).read_bytes()),
        platform=platform_digest(platform),
        key=key_tag(key),
        checks=list(record.declared_checks),
    )
    ledger.append(
        "window",
        boot=BOOT_ID.read_text().strip(),
        opened_ms=int(window.opened_s * 1000),
        submit_ms=int(limits.submit_s * 1000),
        hard_ms=int(limits.hard_s * 1000),
        checkpoint_ms=int(limits.checkpoint_s * 1000),
    )
    sync(evidence)
    return Run(root, logs, record, ledger, window, key)


def next_counter(evidence: Path) -> int:
    """The lowest counter above those of every run in a folder of evidence; 1 where there is none.

    A run that was killed keeps its counters: it may go on.  Raises RunError where a run does not say which it has.
    """
    least = 1
    for root in find_runs(evidence) if evidence.is_dir() else ():
        try:
            record = read_model(RunRecord, (root / RUN_FILE).read_bytes(), RUN_FILE)
        except (OSError, ReceiptError) as error:
            raise RunError(
                f"{root} does not say which counters it has, so none can be chosen: {' '.join(str(error).split())}."
            ) from None
        least = max(least, int(record.counter_first) + len(record.declared_checks))
    return least


def _declared(
    run_id: str, platform: Platform, checks: Sequence[Check], limits: Limits, counter_first: int
) -> RunRecord:
    """What the run says of itself.  Raises RunError."""
    if counter_first + len(checks) - 1 > U64_MAX:
        raise RunError(
            f"counter {counter_first} leaves none for each of {len(checks)} receipts: {U64_MAX} is the last."
        )
    try:
        return RunRecord(
            format=RUN_FORMAT,
            run_id=run_id,
            tool_version=__version__,
            platform=platform.name,
            declared_checks=tuple(sorted(check.name for check in checks)),
            arms=tuple(arm_declaration(arm) for arm in distinct_arms(checks)),
            counter_first=str(counter_first),
            blinding=BLINDING,
            started=utc(),
            window_submission_seconds=max(1, int(limits.submit_s)),
            window_bound_seconds=max(1, int(limits.hard_s)),
        )
    except ValidationError as error:
        said = "; ".join(one.sentence for one in field_violations(error, ""))
        raise RunError(f"the run {run_id!r} cannot be declared: {said}.") from None


def resume(
    evidence: Path,
    run_id: str,
    platform: Platform,
    checks: Sequence[Check],
    key: bytes,
    *,
    finishing: bool = False,
) -> Run:
    """A run that was begun.  finishing: no engine is started any more, so its window may be over.

    Raises RunError where it is another run, or one whose window is over, and LedgerError.
    """
    root = evidence / f"{run_id}{PARTIAL}"
    if not root.is_dir():
        raise RunError(f"{root} is not there: no run of that name is under way.")
    ledger = Ledger(root / LEDGER_FILE, resume=True)
    try:
        record = read_model(RunRecord, (root / RUN_FILE).read_bytes(), RUN_FILE)
        (begun,), (opened,) = of_kind(ledger.entries, "run"), of_kind(ledger.entries, "window")
    except (OSError, ReceiptError, ValueError) as error:
        raise RunError(f"{root} cannot go on: {' '.join(str(error).split())}.") from None
    for what, found, wanted in (
        ("run.json", begun["record"], sha256((root / RUN_FILE).read_bytes())),
        ("the platform file", begun["platform"], platform_digest(platform)),
        ("the blinding key", begun["key"], key_tag(key)),
        ("the list of checks", begun["checks"], sorted(check.name for check in checks)),
    ):
        if found != wanted:
            raise RunError(f"{root} cannot go on: {what} is not the one that the run began with.")
    limits = Limits(*(opened[name] / 1000 for name in ("submit_ms", "hard_ms", "checkpoint_ms")))
    window = Window(limits, opened_s=opened["opened_ms"] / 1000)
    if not finishing:
        _refuse_closed(root, opened, window)
    return Run(root, logs_of(evidence, run_id), record, ledger, window, key)


def _refuse_closed(root: Path, opened: Entry, window: Window) -> None:
    """Raises RunError where a window is over."""
    if opened["boot"] != BOOT_ID.read_text().strip():
        raise RunError(f"{root} cannot go on: this host was started again, so its window is over.")
    try:
        window.left_s(0.0)
    except WindowError as error:
        raise RunError(f"{root} cannot go on: {error}.") from None


def publish(run: Run, signer: CryptoSigner) -> Path:
    """Give the run its name, then its `complete.json`.  Nothing is written to it afterwards.  Raises RunError."""
    final = run.root.with_name(run.run_id)
    run.ledger.append("publish", run=run.run_id)
    run.ledger.close()
    try:
        for folder, _, files in os.walk(run.root):
            for name in files:
                sync(Path(folder, name))
            sync(Path(folder))
        record = complete_record(run.root, run.run_id)
        if final.exists():
            raise RunError(f"{final} is there already.")
        run.root.rename(final)
        sync(final.parent)
        publish_file(final / COMPLETE_FILE, seal(to_bytes(record), signer, COMPLETE_TYPE))
    except OSError as error:
        raise RunError(f"{run.root} cannot be published: {error.strerror}.") from error
    return final


def publish_file(path: Path, data: bytes) -> None:
    """A file that is there whole or not at all, and on the disk.  Raises OSError."""
    files.publish(path, data, synced=True)


# --- the blinding key ---


def draw_key() -> bytes:
    """A new blinding key."""
    return secrets.token_bytes(32)


def key_of(path: Path, *, create: bool) -> bytes:
    """The key in a file that lies outside of the evidence, made where create says so.  Raises RunError.

    Two arms that run one after the other need the same key, so somebody must keep it meanwhile; `finish` takes the file
    away.
    """
    try:
        if create and not path.exists():
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "w") as made:
                made.write(draw_key().hex() + "\n")
        with files.open_plain(path) as kept:
            if os.fstat(kept.fileno()).st_mode & 0o077:
                raise RunError(
                    f"{path}: others may read it; the blinding key is its owner's alone (chmod 600)."
                )
            return parse_key(files.read_bounded(kept, KEY_FILE_BYTES_MAX).decode("ascii").strip())
    except files.NotRegularFileError:
        raise RunError(f"{path}: it is no regular file; the blinding key lies in one.") from None
    except OSError as error:
        raise RunError(f"{path} cannot be used: {error.strerror}.") from None
    except ValueError as error:
        raise RunError(f"{path} holds no blinding key: {error}.") from None


def key_tag(key: bytes) -> str:
    """Names a key without telling it."""
    return Blind(key).tag("text", b"the key of this run")


def platform_digest(platform: Platform) -> str:
    """Of a platform, as it was read."""
    return sha256(platform.model_dump_json().encode())
