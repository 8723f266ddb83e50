"""Every check on vLLM's CPU engine: passes a sound product as far as this platform shows it, and fails a defect in it.

Run by `nox -s qualify_test`, which says where the engine's Python is; minutes for each defect.
"""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from qualification.checks.model import Check, Found, Verdict
from qualification.checks.registry import all_checks
from qualification.runs.platform import Platform, parse_platform
from rehearsing import planted, rehearse, told, verdict

pytestmark = pytest.mark.engine

PLATFORMS = Path(__file__).parents[2] / "qualification" / "platforms"
RUN = [check for check in all_checks() if not check.missing]
NEEDS_MORE = {
    "disconnect_before_after_final_watchdog_late_reply": {"asynchronous_hand_off"},
    "final_need_draft_real_complete": {"row_reduction"},
    "rank_q_kept_position_valid_anchor_owner_agreement": {"row_reduction"},
    "table_rows_exact_and_fallback": {"engram_tables"},
}
"""What subcases need that this platform does not show."""
SHOWN = [check for check in RUN if any(not subcase.needs for subcase in check.subcases)]
"""Checks that can fail here."""


def cpu(check: str = "") -> Platform:
    """The CPU engine; with a check's defect in the product where one is named."""
    values: dict[str, Any] = tomllib.loads((PLATFORMS / "cpu.toml").read_text(encoding="utf-8"))
    values["python"] = os.environ["QUALIFY_ENGINE_PYTHON"]
    for name, more in planted(check, "vllm").items():
        if name == "every_arm":
            values[name]["environment"] |= more["environment"]
        else:
            values[name] = more
    return parse_platform(values, PLATFORMS)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Verdict, set[str], str]]:
    """Of a run of all checks without a defect: verdict, capabilities of subcases that did not pass, and why."""
    found = {}
    for decision in rehearse(tmp_path_factory.mktemp("sound") / "evidence", cpu(), RUN):
        needs = {subcase.name: subcase.needs for subcase in decision.check.subcases}
        lacking = {needs[each.subcase] for each in decision.conclusions if each.found is not Found.PASSED}
        found[decision.check.name] = verdict(decision), lacking, told(decision)
    return found


@pytest.mark.parametrize("check", RUN, ids=lambda check: check.name)
def test_a_sound_product_passes_as_far_as_the_platform_shows_it(
    check: Check, sound: dict[str, tuple[Verdict, set[str], str]]
) -> None:
    found, lacking, why = sound[check.name]
    needs = NEEDS_MORE.get(check.name, set())
    assert lacking == needs, why
    assert found is (Verdict.NOT_RUN if needs else Verdict.PASS), why


@pytest.mark.parametrize("check", SHOWN, ids=lambda check: check.name)
def test_a_defect_in_the_product_fails(check: Check, tmp_path: Path) -> None:
    (decision,) = rehearse(tmp_path / "evidence", cpu(check.name), [check])
    assert verdict(decision) is Verdict.FAIL, told(decision)
