"""Which checks there are, and what each must say of itself."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import qualification.checks
from ofl.contract.observation_v1 import CAPABILITIES
from qualification.checks import registry
from qualification.checks.model import Arm, Check, Conclusion, Found, Verdict, not_run, verdict_of
from qualification.checks.registry import all_checks, check_named

TWELVE = [
    "rank_q_kept_position_valid_anchor_owner_agreement",
    "final_need_draft_real_complete",
    "source_kv_writes_retained",
    "step_generation_echo_and_uniform_broadcast",
    "near_cap_k4_k5_sync_async_clamp",
    "remaining129_256_257_and_leftover64_128_peer_progress",
    "partial_full_hits_async_restore_real_suffix",
    "cancel_slot_reuse_preempt_backtrack",
    "disconnect_before_after_final_watchdog_late_reply",
    "mixed_rejected_rows_mm_logprobs_exclusions",
    "native_dispatch_unchanged",
    "no_local_drafter",
]
BEYOND = [
    "worker_equals_reference",
    "greedy_text_equals_target_only",
    "acceptance_holds_over_prompt_length",
    "table_rows_exact_and_fallback",
    "hand_off_soak",
    "transport_faults_and_budgets",
]
NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")


def test_the_twelve_and_those_beyond_are_registered_in_order() -> None:
    assert [check.name for check in all_checks()] == sorted((*TWELVE, *BEYOND))


def test_a_check_is_one_file_of_its_name() -> None:
    folder = Path(qualification.checks.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert files - set(registry.NO_CHECKS) == {check.name for check in all_checks()}


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.name)
def test_each_says_what_a_plan_and_a_receipt_need(check: Check) -> None:
    assert NAME.fullmatch(check.name)
    assert check.asks.endswith("?")
    assert check.arm_variable
    assert check.off.ranks == check.on.ranks
    names = [subcase.name for subcase in check.subcases]
    assert names
    assert len(set(names)) == len(names)
    assert all(NAME.fullmatch(name) for name in (*names, *check.thresholds))
    assert all(subcase.asks.endswith("?") for subcase in check.subcases)
    assert check_named(check.name) is check


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.name)
def test_what_cannot_run_says_what_it_lacks_and_is_not_run(check: Check) -> None:
    assert bool(check.missing) == (check.drive is None) == (check.decide is None)
    assert verdict_of(check, not_run(check)) is Verdict.NOT_RUN
    if check.missing:
        assert {each.why for each in not_run(check)} == {check.missing}


def test_arms_of_a_pair_differ_and_arms_of_one_name_are_one_arm() -> None:
    by_name: dict[str, Arm] = {}
    for check in all_checks():
        assert replace(check.off, name=check.on.name) != check.on
        for arm in (check.off, check.on):
            assert by_name.setdefault(arm.name, arm) == arm
    starts = {arm.name for check in all_checks() if not check.missing for arm in (check.off, check.on)}
    assert starts == {
        "target_only",
        "local",
        "local_2",
        "remote",
        "remote_2",
        "shadow",
        "table_local",
        "table_remote",
    }


def test_needs_are_capabilities_that_facts_can_name() -> None:
    needs = {subcase.needs for check in all_checks() for subcase in check.subcases}
    assert needs - {""} <= set(CAPABILITIES)


def test_a_verdict_follows_from_subcases_alone() -> None:
    check = check_named("no_local_drafter")
    passed = [Conclusion(subcase.name, Found.PASSED, "It is so.", 1) for subcase in check.subcases]
    assert verdict_of(check, passed) is Verdict.PASS
    nothing_seen = [*passed[:-1], Conclusion(passed[-1].subcase, Found.PASSED, "It is so.", 0)]
    assert verdict_of(check, nothing_seen) is Verdict.NOT_RUN
    failed = [Conclusion(passed[0].subcase, Found.FAILED, "It is not.", 1), *nothing_seen[1:]]
    assert verdict_of(check, failed) is Verdict.FAIL
    assert verdict_of(check, passed[1:]) is Verdict.HOLD


def test_checks_that_would_read_each_others_requests_are_refused() -> None:
    one, two = check_named("no_local_drafter"), check_named("worker_equals_reference")
    for prefix in (one.requests, one.requests + "more.", ""):
        with pytest.raises(ValueError, match="of no check, or of two"):
            registry._unambiguous((one, replace(two, requests=prefix)))
    with pytest.raises(ValueError, match="must either run or say what it lacks"):
        registry._unambiguous((replace(one, missing="It lacks nothing."),))
