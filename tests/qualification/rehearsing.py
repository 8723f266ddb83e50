"""Whole rehearsals of single checks, as tests want them: begun, run on both sides, decided; nothing signed."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qualification.checks.model import Check, Conclusion, Verdict, verdict_of
from qualification.checks.registry import check_named
from qualification.runs import folder
from qualification.runs.declared import SIDES
from qualification.runs.finish import Decision, decide_run
from qualification.runs.platform import Platform, parse_platform
from qualification.runs.side import run_side
from qualification.runs.window import Limits

PLANTS = Path(__file__).with_name("plants") / "arm"
LIMITS = Limits(submit_s=1200, hard_s=1500)


def simulator(check: str = "") -> Platform:
    """The simulator in this Python; with a check's defect in its product code where one is named."""
    values: dict[str, Any] = {
        "name": "simulator",
        "engine": "simulator",
        "python": sys.executable,
        "start_s": 120.0,
    }
    return parse_platform(values | planted(check, "simulator"), Path.cwd())


def planted(check: str, engine: str) -> dict[str, Any]:
    """What a platform says to have a defect planted; nothing without a check."""
    if not check:
        return {}
    environment = {"PLANT": check, "PLANT_ENGINE": engine}
    return {"python_path": [str(PLANTS)], "every_arm": {"environment": environment}}


def rehearse(
    evidence: Path, platform: Platform, checks: Sequence[Check], run_id: str = "run"
) -> list[Decision]:
    """Both sides of a run, and what it decides."""
    run = folder.begin(evidence, run_id, platform, checks, LIMITS, folder.draw_key())
    try:
        for side in SIDES:
            run_side(run, platform, checks, side)
        return decide_run(run, checks)[1]
    finally:
        run.close()


def named(*names: str) -> list[Check]:
    """Checks by name."""
    return [check_named(name) for name in names]


def verdict(decision: Decision) -> Verdict:
    """Of one decision; HOLD where the check could not judge."""
    return Verdict.HOLD if decision.hold else verdict_of(decision.check, decision.conclusions)


def told(decision: Decision) -> str:
    """What is not as it should be, for a failing test."""
    wrong: list[Conclusion] = [each for each in decision.conclusions if each.found != "passed"]
    return f"{decision.hold} {[(each.subcase, each.found.value, each.why) for each in wrong]}"
