"""What a check is made of.  A check's file declares one `Check`; everything else finds it by its name.

Pure: no process, file or clock.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ofl.contract import observation_v1 as seen


class Verdict(StrEnum):
    """Of a check.  Only PASS from native evidence can promote."""

    PASS = "PASS"
    FAIL = "FAIL"
    NOT_RUN = "NOT RUN"
    HOLD = "HOLD"


class EvidenceError(Exception):
    """`decide` raises it where records cannot be judged: torn, spliced or contradicting each other.  Makes HOLD."""


class Found(StrEnum):
    """What became of a subcase."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_SEEN = "not seen"


@dataclass(frozen=True)
class Arm:
    """One configuration of one engine.  speculation: "none", "local", "remote" or "shadow".  ranks: 1 or 2."""

    name: str
    speculation: str
    ranks: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Prompt:
    """Tokens of a prompt, made by the arm from these numbers alone, the same in every arm.

    shared: leading tokens that it has in common with every other prompt of the same `group`.
    """

    tokens: int
    seed: int
    group: int = 0
    shared: int = 0


@dataclass(frozen=True)
class FaultOrder:
    """One fault on one request's traffic.  action: "drop_before_final", "disconnect_before_final",
    "disconnect_after_final", "hold_reply", "old_generation".

    hold_steps: engine steps that a held reply stays held for, past its deadline.
    """

    request: str
    action: str
    hold_steps: int = 0


class Engine(Protocol):
    """An arm's engine as a check drives it.  Every call ends within the window's bounds or raises."""

    @property
    def facts(self) -> seen.Facts:
        """Rank 0's."""
        ...

    def submit(self, request: str, prompt: Prompt, max_tokens: int, *, at_step: int = 0) -> None:
        """Have a request begin once so many engine steps of this case have passed."""

    def cancel(self, request: str, *, after_tokens: int) -> None:
        """Have a request cancelled once so many of its tokens are there."""

    def fault(self, order: FaultOrder) -> None:
        """Arm a fault, for this case.  Without effect in an arm that has no transport."""

    def run(self) -> Sequence[seen.Completed]:
        """Run until every request of the case has ended."""


@dataclass(frozen=True)
class ArmObservations:
    """All that hooks and harness saw in one arm.  ranks: whole files by rank, in order, `Facts` to `Closed`.

    harness: `Case` and `Completed` records of this check, as the arm process wrote them.  The files may hold cases of
    other checks too, where one engine served several; requests' names say which are whose (`Check.requests`).
    """

    arm: Arm
    ranks: Sequence[Sequence[seen.Observation]]
    harness: Sequence[seen.Observation]


@dataclass(frozen=True)
class Conclusion:
    """Of one subcase.  why: one sentence; it names the request and step where something is wrong."""

    subcase: str
    found: Found
    why: str
    observed: int = 0


Decide = Callable[[ArmObservations, ArmObservations, Mapping[str, float]], Sequence[Conclusion]]
"""OFF, ON, thresholds -> one conclusion per declared subcase, in that order."""


@dataclass(frozen=True)
class Subcase:
    """needs: a capability of the platform without which it cannot be seen (`observation_v1.CAPABILITIES`)."""

    name: str
    asks: str
    needs: str = ""


@dataclass(frozen=True)
class Check:
    """A named question.  arm_variable: what alone differs between OFF and ON.

    drive: one case at a time, on each arm.  missing: why it cannot run at all; empty where it can.
    thresholds: defaults, which a policy may tighten.  requests: what every request's name begins with, and no other
    check's does.
    """

    name: str
    asks: str
    arm_variable: str
    off: Arm
    on: Arm
    subcases: tuple[Subcase, ...]
    drive: Callable[[Engine], None] | None = None
    decide: Decide | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    missing: str = ""
    requests: str = ""
    seconds: float = 60.0
    """What a run of one arm takes, for the plan; engine start not counted."""


def not_run(check: Check) -> tuple[Conclusion, ...]:
    """Conclusions of a check that cannot run: nothing was seen, for the reason that it states."""
    return tuple(
        Conclusion(subcase.name, Found.NOT_SEEN, check.missing or "The check did not run.")
        for subcase in check.subcases
    )


def verdict_of(check: Check, conclusions: Sequence[Conclusion]) -> Verdict:
    """FAIL where one failed; else NOT RUN where one was not seen; else PASS.  HOLD where they are not the declared."""
    declared = [subcase.name for subcase in check.subcases]
    if [conclusion.subcase for conclusion in conclusions] != declared:
        return Verdict.HOLD
    if not declared:
        return Verdict.NOT_RUN
    if any(conclusion.found is Found.FAILED for conclusion in conclusions):
        return Verdict.FAIL
    if any(conclusion.found is Found.NOT_SEEN or not conclusion.observed for conclusion in conclusions):
        return Verdict.NOT_RUN
    return Verdict.PASS
