"""A check that is nothing but two requests, and a runner of it: for tests of the run and not of the product.

`python small.py EVIDENCE KEY_FOLDER LINE [kill|full]` runs it to the end, but at ledger line LINE kills itself
(SIGKILL, before the line is written) or finds the disk full; LINE -1: never.
"""

import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qualification.checks.model import Arm, ArmObservations, Check, Conclusion, Engine, Found, Prompt, Subcase
from qualification.receipts.keys import PRIVATE_FILE, keygen, load_signer
from qualification.receipts.statement import Digest, Subject
from qualification.runs import folder
from qualification.runs.declared import SIDES
from qualification.runs.finish import finish
from qualification.runs.folder import Run, RunError
from qualification.runs.ledger import Ledger, LedgerError
from qualification.runs.platform import Platform, parse_platform
from qualification.runs.side import run_side
from qualification.runs.window import Limits

RUN_ID = "run"
LIMITS = Limits(submit_s=200, hard_s=300, checkpoint_s=200)
SUBJECTS = (Subject(name="wheel:small", digest=Digest(sha256="5" * 64)),)
KEY_FILE = "blinding"


def drive(engine: Engine) -> None:
    """One request after the other."""
    for number in (1, 2):
        engine.submit(f"small.{number}", Prompt(20, seed=number), 6)
        engine.run()


def decide(off: ArmObservations, on: ArmObservations, _: Mapping[str, float]) -> Sequence[Conclusion]:
    """Both arms have both requests."""
    ended = [sum(1 for each in arm.harness if each.record.kind == "completed") for arm in (off, on)]
    found = Found.PASSED if ended == [2, 2] else Found.FAILED
    return [Conclusion("ended", found, f"{ended} requests ended", sum(ended))]


CHECK = Check(
    name="small",
    asks="Do two requests end?",
    arm_variable="whether the engine drafts",
    off=Arm("target_only", "none"),
    on=Arm("local", "local"),
    subcases=(Subcase("ended", "Do they?"),),
    drive=drive,
    decide=decide,
    requests="small.",
)


def platform(**changes: Any) -> Platform:
    """The simulator in this Python."""
    values = {"name": "simulator", "engine": "simulator", "python": sys.executable, "start_s": 60.0}
    return parse_platform(values | changes, Path.cwd())


def begin(evidence: Path, key: bytes) -> Run:
    """The run of the small check."""
    return folder.begin(evidence, RUN_ID, platform(), [CHECK], LIMITS, key)


def complete(run: Run, keys: Path) -> Path:
    """Both sides, unless they are there, and publication."""
    try:
        for side in SIDES:
            if not any(entry.kind == "side" and entry["side"] == side for entry in run.ledger.entries):
                run_side(run, platform(), [CHECK], side)
        return finish(run, [CHECK], SUBJECTS, load_signer(keys / PRIVATE_FILE))[0]
    finally:
        run.close()


def fail_at(line: int, how: str) -> None:
    """From now on this process ends, or cannot write, at a line."""
    whole = Ledger.append

    def append(self: Ledger, kind: str, **fields: Any) -> None:
        if len(self.entries) == line:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            self.close()
            raise LedgerError(f"line {line}: {os.strerror(errno.ENOSPC)}")
        whole(self, kind, **fields)

    Ledger.append = append  # type: ignore[method-assign]


def main() -> int:
    """See above."""
    evidence, keys, line, how = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if not keys.is_dir():
        keygen(keys)
    key = folder.key_of(keys / KEY_FILE, create=True)
    fail_at(line, how)
    try:
        complete(begin(evidence, key), keys)
    except (RunError, LedgerError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
