"""OFF and ON: one engine whose remote drafting is paused and resumed by its control file, or two engines.

Owns the order in the control file for the time of a run, and gives it back as it was.  An arm is entered when its
effect was seen: in the stats file for OFF, in accepted drafts for ON.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from spark_overlay.bench.errors import BenchRefused
from spark_overlay.bench.evidence import Evidence, read_evidence, require_rounds, require_usable
from spark_overlay.bench.plan import ArmName
from spark_overlay.bench.sample import POLL_S, Sample
from spark_overlay.control.files import changed, read_record
from spark_overlay.control.record import ControlFileError, ControlRecord, State
from spark_overlay.http_api.api import EngineApi

EFFECT_S = 30.0
"""An engine looks at its control file twenty times a second; this is for a busy host."""
ROUND_PAUSE_S = 0.5
STATES: dict[ArmName, State] = {"off": "paused", "on": "active"}
REASON = "spark-overlay bench"
Pause = Callable[[float], None]


class Arms(Protocol):
    """Where OFF and ON are.  how: in words, for the result."""

    how: str

    def apis(self) -> tuple[EngineApi, ...]:
        """Every engine of it, each of which must be idle before a request."""

    def enter(self, arm: ArmName) -> EngineApi:
        """The engine to ask, in that arm.  Raises BenchRefused where it does not get there."""

    def judge(self, sample: Sample) -> None:
        """Raise BenchRefused unless the arm was the same until now."""

    def close(self, make_round: Callable[[], object]) -> None:
        """Judge the run as a whole.  make_round: a short request of ON.  Raises BenchRefused."""


@dataclass
class TwoEngines:
    """One engine for each arm.  stats: the file of ON, where there is one to read."""

    off: EngineApi
    on: EngineApi
    stats: Path | None = None
    before: Evidence | None = None
    pause: Pause = time.sleep
    how: str = "two engines"

    def __post_init__(self) -> None:
        if self.stats is not None:
            self.before = _usable(self.stats)

    def apis(self) -> tuple[EngineApi, ...]:
        """Both: they may share a host."""
        return (self.off, self.on)

    def enter(self, arm: ArmName) -> EngineApi:
        """The arm's own."""
        return self.off if arm == "off" else self.on

    def judge(self, sample: Sample) -> None:
        """ON must still be in use."""
        if self.stats is not None:
            _usable(self.stats)

    def close(self, make_round: Callable[[], object]) -> None:
        """ON's rounds must have succeeded, by its stats file."""
        if self.stats is not None and self.before is not None:
            require_rounds(self.stats, self.before, _newest(self.stats, make_round, self.pause))


@dataclass
class OneEngine:
    """One engine, paused and resumed.  control, stats: files of that engine."""

    api: EngineApi
    control: Path
    stats: Path
    pause: Pause = time.sleep
    now_s: Callable[[], float] = time.time
    how: str = "one engine, paused and resumed"
    before: Evidence = field(init=False)
    at: ArmName | None = None

    def __post_init__(self) -> None:
        self.before = _usable(self.stats)
        if self.before.control is None or self.before.control.absolute() != self.control.absolute():
            obeyed = "none" if self.before.control is None else str(self.before.control)
            raise BenchRefused(
                f"the engine of {self.stats} obeys another control file than {self.control}: {obeyed}"
            )
        record = self._read()
        if record.state != "active":
            raise BenchRefused(
                f"remote drafting is paused by {self.control} ({record.reason or 'without a reason'}): "
                "spark-overlay resume first"
            )

    def apis(self) -> tuple[EngineApi, ...]:
        """The one."""
        return (self.api,)

    def enter(self, arm: ArmName) -> EngineApi:
        """Write the order and wait until it is in effect."""
        if arm != self.at:
            self._order(STATES[arm])
            self._await(STATES[arm])
            self.at = arm
        return self.api

    def judge(self, sample: Sample) -> None:
        """Nobody may have changed the order meanwhile."""
        state = _usable(self.stats).state
        if self.at is None or state != STATES[self.at]:
            raise BenchRefused(f"somebody else changed {self.control}: the engine is {state} now")

    def close(self, make_round: Callable[[], object]) -> None:
        """The rounds of ON must have succeeded, by the stats file."""
        require_rounds(self.stats, self.before, _newest(self.stats, make_round, self.pause))

    def give_back(self) -> None:
        """Resume, if the order is still ours.  Raises BenchRefused where it cannot be written."""
        if self._read().reason == REASON:
            self._order("active", reason="")

    def _await(self, state: State) -> None:
        end_s = time.monotonic() + EFFECT_S
        while (found := _usable(self.stats)).state != state:
            if time.monotonic() > end_s:
                problem = f": {found.problem}" if found.problem else ""
                raise BenchRefused(
                    f"{EFFECT_S:g} s after {self.control} said {state} the engine is {found.state} still{problem}"
                )
            self.pause(POLL_S)

    def _order(self, state: State, reason: str = REASON) -> None:
        try:
            changed(
                self.control,
                lambda record: record.changed(
                    state=state, reason=reason, written_at=self.now_s(), written_by_uid=os.getuid()
                ),
            )
        except ControlFileError as error:
            raise BenchRefused(f"the control file {self.control} {error}") from None

    def _read(self) -> ControlRecord:
        try:
            return read_record(self.control) or ControlRecord()
        except ControlFileError as error:
            raise BenchRefused(f"the control file {self.control} {error}") from None


@contextmanager
def borrowed(engine: OneEngine) -> Iterator[OneEngine]:
    """The engine for the time of a run; resumed at its end, however it ends."""
    try:
        yield engine
    finally:
        engine.give_back()


def _newest(stats: Path, make_round: Callable[[], object], pause: Pause) -> Evidence:
    """The stats once they hold all rounds until now: a round writes them, if ten seconds after the last one that did.

    Raises BenchRefused where no round changes them.
    """
    now = read_evidence(stats).rounds
    end_s = time.monotonic() + EFFECT_S
    while True:
        make_round()
        if (found := read_evidence(stats)).rounds != now:
            return found
        if time.monotonic() > end_s:
            raise BenchRefused(
                f"no round of the engine was counted in {stats} for {EFFECT_S:g} s: it is of another engine"
            )
        pause(ROUND_PAUSE_S)


def _usable(stats: Path) -> Evidence:
    found = read_evidence(stats)
    require_usable(stats, found)
    return found
