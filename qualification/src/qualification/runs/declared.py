"""What checks declare of arms, put together: which arms a run has, which checks are driven in which.

Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from qualification.checks.model import Arm, Check

Side = Literal["off", "on"]
SIDES: tuple[Side, ...] = ("off", "on")


class DeclarationError(ValueError):
    """Checks that contradict each other; one sentence."""


def arm_of(check: Check, side: Side) -> Arm:
    """The arm of a check on one side."""
    return check.off if side == "off" else check.on


def driven(checks: Iterable[Check]) -> list[Check]:
    """Those that can run at all."""
    return [check for check in checks if check.drive is not None and not check.missing]


def distinct_arms(checks: Iterable[Check]) -> list[Arm]:
    """Every arm once, by name.  Raises DeclarationError where a name stands for two."""
    found: dict[str, Arm] = {}
    for check in checks:
        for arm in (check.off, check.on):
            if found.setdefault(arm.name, arm) != arm:
                raise DeclarationError(
                    f"{check.name}: another check means something else by the arm {arm.name!r}."
                )
    return [found[name] for name in sorted(found)]


def by_arm(checks: Sequence[Check], side: Side) -> Iterator[tuple[Arm, list[Check]]]:
    """Each arm of a side with the checks that are driven in it, so that one engine start serves them all."""
    mine = driven(checks)
    for arm in distinct_arms(checks):
        if checks_of_arm := [check for check in mine if arm_of(check, side) == arm]:
            yield arm, checks_of_arm
