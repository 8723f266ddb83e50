"""One side of a run, OFF or ON: every arm of it in turn, one engine at a time, under the supervisor.

An arm that failed may be tried again: the next start has an id of its own and drives everything from the beginning.
Nothing of two starts is put together.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from qualification.arms.client import ArmError
from qualification.checks.model import Check
from qualification.runs.declared import Side, by_arm
from qualification.runs.folder import Run, RunError
from qualification.runs.interruption import Interrupted
from qualification.runs.ledger import Entry, LedgerError, of_kind
from qualification.runs.platform import Platform
from qualification.runs.processes import ProcessError
from qualification.runs.starts import Stage, run_start
from qualification.runs.supervisor import GUARD_EVERY_S, StoppedError, Supervisor
from qualification.runs.window import WindowError


def run_side(
    run: Run,
    platform: Platform,
    checks: Sequence[Check],
    side: Side,
    *,
    attempts: int = 1,
    guard: Sequence[str] = (),
    guard_every_s: float = GUARD_EVERY_S,
) -> None:
    """Every arm of the side that has not ended yet.  Raises RunError where one cannot be brought to its end."""
    if any(of_kind(run.ledger.entries, "side", side=side)):
        raise RunError(f"the side {side!r} of this run is complete.")
    _abandon_leftovers(run)
    with _told(run), Supervisor(run.window, guard, guard_every_s) as supervisor:
        stage = Stage(run, platform, supervisor)
        for arm, mine in by_arm(checks, side):
            if counting_start(run.ledger.entries, side, arm.name) is not None:
                continue
            for attempt in range(attempts):
                try:
                    run_start(stage, side, arm, mine)
                    break
                except (ArmError, ProcessError) as error:
                    if attempt + 1 == attempts:
                        raise RunError(f"{side.upper()}, arm {arm.name}: {error}.") from error
        supervisor.check()
        run.ledger.append("side", side=side)


def counting_start(entries: Sequence[Entry], side: Side, arm: str) -> str | None:
    """The start whose evidence counts for an arm of a side; None where none has ended in order."""
    started = [entry["start"] for entry in of_kind(entries, "start", side=side, arm=arm)]
    ended = {entry["start"] for entry in of_kind(entries, "ended")}
    mine = [start for start in started if start in ended]
    assert len(mine) <= 1, "an arm that has ended is not started again"
    return mine[0] if mine else None


def _abandon_leftovers(run: Run) -> None:
    """Starts of a runner that is gone: whatever they left does not count."""
    entries = run.ledger.entries
    over = {entry["start"] for kind in ("ended", "abandoned") for entry in of_kind(entries, kind)}
    for entry in list(of_kind(entries, "start")):
        if entry["start"] not in over:
            run.ledger.append("abandoned", start=entry["start"], why="the runner that made it is gone")


@contextmanager
def _told(run: Run) -> Iterator[None]:
    """Whatever stops the run is its ledger's last word, where that can still be said."""
    try:
        yield
    except (StoppedError, WindowError, Interrupted) as error:
        with suppress(LedgerError):
            run.ledger.append("stopped", why=str(error))
        if isinstance(error, Interrupted):
            raise
        raise RunError(f"the run was stopped: {error}.") from error
