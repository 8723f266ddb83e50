"""Every check that runs passes a sound product and fails one with a defect: through the real runner, arm processes
and all, on the simulated engine.
"""

from pathlib import Path

import pytest
from qualification.checks.model import Check, Found, Verdict
from qualification.checks.registry import all_checks
from rehearsing import named, rehearse, simulator, told, verdict

RUN = [check for check in all_checks() if not check.missing]
NEEDS_MORE = {"disconnect_before_after_final_watchdog_late_reply": {"asynchronous_hand_off"}}
"""Checks with subcases that the simulator cannot show: they stay NOT RUN, and everything else of them passes."""


MORE = {
    "table_rows_exact_and_fallback fallback_exact": {"fallback_exact", "manifest_bound"},
    "table_rows_exact_and_fallback manifest_bound": {"manifest_bound"},
}
"""More defects of a check, by subcase, and what they fail: where a server is refused, rows are the shard's too."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Verdict, set[str], str]]:
    """Of a run of all checks without a defect: verdict, capabilities of subcases that did not pass, and why."""
    decisions = rehearse(tmp_path_factory.mktemp("sound") / "evidence", simulator(), RUN)
    found = {}
    for decision in decisions:
        needs = {subcase.name: subcase.needs for subcase in decision.check.subcases}
        lacking = {needs[each.subcase] for each in decision.conclusions if each.found is not Found.PASSED}
        found[decision.check.name] = verdict(decision), lacking, told(decision)
    return found


@pytest.mark.parametrize("check", RUN, ids=lambda check: check.name)
def test_a_sound_product_passes(check: Check, sound: dict[str, tuple[Verdict, set[str], str]]) -> None:
    found, lacking, why = sound[check.name]
    needs = NEEDS_MORE.get(check.name, set())
    assert lacking == needs, why
    assert found is (Verdict.NOT_RUN if needs else Verdict.PASS), why


@pytest.mark.parametrize("check", RUN, ids=lambda check: check.name)
def test_a_defect_in_the_product_fails(check: Check, tmp_path: Path) -> None:
    (decision,) = rehearse(tmp_path / "evidence", simulator(check.name), [check])
    assert verdict(decision) is Verdict.FAIL, told(decision)


@pytest.mark.parametrize("defect", MORE)
def test_a_defect_fails_the_subcases_that_it_is_about_alone(defect: str, tmp_path: Path) -> None:
    name, _, _ = defect.partition(" ")
    (decision,) = rehearse(tmp_path / "evidence", simulator(defect), named(name))
    assert verdict(decision) is Verdict.FAIL, told(decision)
    failed = {each.subcase for each in decision.conclusions if each.found is Found.FAILED}
    assert failed == MORE[defect]
