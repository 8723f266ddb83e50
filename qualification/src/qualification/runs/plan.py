"""What a run would do, how long it would take, and what is missing.  Starts nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from qualification.checks.model import Arm, Check
from qualification.runs.declared import SIDES, Side, by_arm
from qualification.runs.platform import Platform

START_S = {"simulator": 3.0, "vllm": 45.0}
"""What an engine's start takes at least, for the estimate."""


@dataclass(frozen=True)
class PlannedArm:
    """One engine start.  seconds: about."""

    side: Side
    arm: Arm
    checks: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class PlannedCheck:
    """One check.  missing: why it is NOT RUN, empty where it runs.  not_seen: by subcase, what the platform lacks."""

    check: Check
    missing: str
    not_seen: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """In the order in which it would happen."""

    platform: str
    arms: tuple[PlannedArm, ...]
    checks: tuple[PlannedCheck, ...]

    @property
    def seconds(self) -> float:
        """All of it, about."""
        return sum(arm.seconds for arm in self.arms)


def make_plan(platform: Platform, checks: Sequence[Check]) -> Plan:
    """The plan.  Raises DeclarationError."""
    return Plan(
        platform.name, tuple(_arms(platform, checks)), tuple(_check(platform, check) for check in checks)
    )


def lines(plan: Plan) -> Iterator[str]:
    """For people."""
    yield f"platform {plan.platform}: {len(plan.arms)} engine starts, about {_time(plan.seconds)}"
    for arm in plan.arms:
        ranks = f"{arm.arm.ranks} rank{'s' if arm.arm.ranks > 1 else ''}"
        yield f"  {arm.side.upper():3} {arm.arm.name} ({arm.arm.speculation}, {ranks}), about {_time(arm.seconds)}"
        for name in arm.checks:
            yield f"        {name}"
    for planned in plan.checks:
        if planned.missing:
            yield f"  NOT RUN {planned.check.name}: {planned.missing}"
        for subcase, why in planned.not_seen.items():
            yield f"  NOT RUN {planned.check.name}, subcase {subcase}: {why}"


def _arms(platform: Platform, checks: Sequence[Check]) -> Iterator[PlannedArm]:
    for side in SIDES:
        for arm, mine in by_arm(checks, side):
            share = 0.1 if platform.engine == "simulator" else 1.0
            seconds = START_S[platform.engine] * arm.ranks + share * sum(check.seconds for check in mine)
            yield PlannedArm(side, arm, tuple(check.name for check in mine), seconds)


def _check(platform: Platform, check: Check) -> PlannedCheck:
    lacking = {
        subcase.name: f"the platform is not expected to show {subcase.needs}"
        for subcase in check.subcases
        if subcase.needs and subcase.needs not in platform.capabilities and not check.missing
    }
    return PlannedCheck(check, check.missing, lacking)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
