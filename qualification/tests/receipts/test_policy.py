"""Policies: the committed ones can be used; whatever is not understood is refused by name."""

from pathlib import Path

import pytest
from qualification.checks.registry import all_checks
from qualification.policy import PolicyError, parse_policy, read_policy

FOLDER = Path(__file__).parents[2] / "policies"
POLICIES = sorted(FOLDER.glob("*.toml"))
GOOD = (FOLDER / "worker-one-card.toml").read_text()
TWELVE = {
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
}
"""As the reference document on native qualification names them."""


def test_there_is_a_policy_for_each_promotion() -> None:
    assert {path.stem for path in POLICIES} == {
        "worker-one-card",
        "worker-two-cards",
        "remote-tables",
        "overlay-version",
        "asynchronous-hand-off",
    }


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_a_committed_policy_can_be_used_and_has_its_files_name(path: Path) -> None:
    assert read_policy(path).name == path.stem


@pytest.mark.parametrize(
    "name", ["worker-one-card", "worker-two-cards", "overlay-version", "asynchronous-hand-off"]
)
def test_whatever_drafts_needs_all_twelve(name: str) -> None:
    assert set(read_policy(FOLDER / f"{name}.toml").required_checks) > TWELVE


def test_every_check_is_required_by_a_policy() -> None:
    required = {name for path in POLICIES for name in read_policy(path).required_checks}
    assert required == {check.name for check in all_checks()}


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_a_policy_pins_every_threshold_that_its_checks_decide_by(path: Path) -> None:
    policy = read_policy(path)
    pinned = {(limit.check, limit.name) for limit in policy.thresholds}
    declared = {
        (check.name, name)
        for check in all_checks()
        if check.name in policy.required_checks
        for name in check.thresholds
    }
    assert pinned == declared


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_the_thresholds_that_checks_declare_satisfy_the_policy(path: Path) -> None:
    """A direction the wrong way round, or a bound that no run can meet, would hold for ever."""
    checks = {check.name: check for check in all_checks()}
    for limit in read_policy(path).thresholds:
        declared = checks[limit.check].thresholds[limit.name]
        assert limit.at_least is None or declared >= limit.at_least, limit
        assert limit.at_most is None or declared <= limit.at_most, limit


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "worker-one-card"', 'name = "worker-one-card"\nwaive = true', "field waive is unknown"),
        ("minimum_counter = 1", "", "field minimum_counter is missing"),
        ("minimum_counter = 1", "minimum_counter = 0", "field minimum_counter"),
        ("minimum_counter = 1", "minimum_counter = 1.0", "field minimum_counter"),
        ("minimum_counter = 1", "minimum_counter = nan", "no TOML that can be used"),
        ("minimum_counter = 1", "minimum_counter = 2026-01-01", "a date or time"),
        ('evidence_class = "native"', 'evidence_class = "rehearsal"', "field evidence_class"),
        (
            '"no_local_drafter"',
            '"no_local_drafters"',
            "required_checks names no_local_drafters, which is no check",
        ),
        (
            '"no_local_drafter"',
            '"native_dispatch_unchanged"',
            "required_checks names native_dispatch_unchanged twice",
        ),
        ('    "checkpoint",', '    "wheel",', "required_subjects names wheel twice"),
        ('    "checkpoint",', '    "container",', "field required_subjects.3"),
        ('name = "drop_max"', 'name = "drop"', "acceptance_holds_over_prompt_length has no threshold drop"),
        (
            'name = "drafted_min"',
            'name = "drop_max"',
            "acceptance_holds_over_prompt_length drop_max stands twice",
        ),
        ("at_most = 0.05", "", "needs at_least or at_most"),
        ("at_most = 0.05", "at_most = 0.05\nat_least = 0.01", "and not both"),
        ("at_most = 0.05", "at_most = inf", "no TOML that can be used"),
        (
            'check = "worker_equals_reference"',
            'check = "table_rows_exact_and_fallback"',
            "table_rows_exact_and_fallback is not among required_checks",
        ),
        ('devices = ["NVIDIA GB10"]', "devices = []", "field platform.devices"),
        ('devices = ["NVIDIA GB10"]', "", "field platform.devices is missing"),
        ("ranks = [1, 2]", "ranks = [0]", "field platform.ranks.0"),
        ("policy:v1", "policy:v2", "field format"),
        ("[platform]", "[platform", "no TOML that can be used"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(PolicyError, match=said) as refused:
        parse_policy(GOOD.replace(old, new, 1).encode(), "p.toml")
    for line in str(refused.value).splitlines():
        assert line.startswith("p.toml: ")


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(PolicyError, match="no TOML"):
        parse_policy(b"\xff", "p.toml")


def test_a_policy_that_is_not_there_or_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        read_policy(tmp_path / "none.toml")
    (tmp_path / "long.toml").write_text("#" * 300_000)
    with pytest.raises(PolicyError, match="more than 262144 bytes"):
        read_policy(tmp_path / "long.toml")
