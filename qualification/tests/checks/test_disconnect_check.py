"""Connections, messages and replies that are lost or late, and engines that come through them wrongly."""

from collections.abc import Callable
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from qualification.checks.disconnect_before_after_final_watchdog_late_reply import CHECK
from qualification.checks.model import Found, Verdict, verdict_of
from synthetic_evidence import HARNESS, OFF, ON, Evidence, assert_flips, assert_not_seen, of_step
from synthetic_parts import Platform

WATCHDOG = ("watchdog_releases", "watchdog_late_publication")


def step_of_fault(evidence: Evidence, action: str, moment: str) -> int:
    return next(
        record.step
        for record in evidence.records(ON)
        if isinstance(record, seen.Fault) and (record.action, record.moment) == (action, moment)
    )


def good_after(evidence: Evidence, action: str, step: int) -> int:
    return next(
        record.step
        for record in evidence.records(ON)
        if isinstance(record, seen.Decided) and record.step > step
        for entry in record.requests
        if entry.request == f"disconnect.{action}" and entry.outcome == "OK"
    )


def first_good(action: str, **changes: Any) -> Callable[[Evidence], object]:
    """A defect in the message behind the first drafts after a fault."""

    def spoil(evidence: Evidence) -> object:
        step = good_after(evidence, action, step_of_fault(evidence, action, "struck"))
        return evidence.change_entry(ON, 0, of_step(seen.Exchanged, step), f"disconnect.{action}", **changes)

    return spoil


def same_session(action: str) -> Callable[[Evidence], object]:
    """All messages after a lost connection go on in the epoch before it."""

    def spoil(evidence: Evidence) -> object:
        step = step_of_fault(evidence, action, "struck")
        epoch = next(
            r.epoch for r in evidence.records(ON) if isinstance(r, seen.Exchanged) and r.step == step
        )
        good = good_after(evidence, action, step)
        return evidence.change(ON, 0, of_step(seen.Exchanged, good), epoch=epoch, epoch_echoed=epoch)

    return spoil


def decided(
    step_of: Callable[[Evidence], int], reason: str | None = None, **changes: Any
) -> Callable[[Evidence], object]:
    def spoil(evidence: Evidence) -> None:
        where = of_step(seen.Decided, step_of(evidence))
        if reason is not None:
            evidence.change(ON, 0, where, reason=reason)
        if changes:
            evidence.change_entry(ON, 0, where, "disconnect.hold_reply", **changes)

    return spoil


def held(evidence: Evidence) -> int:
    return step_of_fault(evidence, "hold_reply", "held")


def released(evidence: Evidence) -> int:
    return step_of_fault(evidence, "hold_reply", "released")


def other_drafts_leave(evidence: Evidence) -> object:
    return evidence.change(ON, 0, of_step(seen.Published, released(evidence)), drafts=("a" * 32,))


def no_drafts_ever_after(evidence: Evidence) -> object:
    step = released(evidence)
    return evidence.change_entry(
        ON,
        0,
        lambda record: isinstance(record, seen.Decided) and record.step > step,
        "disconnect.hold_reply",
        outcome="GAP",
    )


@pytest.mark.parametrize(
    ("subcase", "spoil"),
    [
        ("disconnect_before_final", first_good("disconnect_before_final", reset=False)),
        ("disconnect_before_final", first_good("disconnect_before_final", partial_window=True)),
        ("disconnect_before_final", first_good("disconnect_before_final", first_position=5)),
        ("disconnect_before_final", same_session("disconnect_before_final")),
        ("disconnect_after_final", first_good("disconnect_after_final", held_from=1)),
        ("disconnect_after_final", first_good("disconnect_after_final", reset=False)),
        ("disconnect_after_final", same_session("disconnect_after_final")),
        ("drop_before_final", first_good("drop_before_final", reset=False, first_position=200)),
        ("drop_before_final", first_good("drop_before_final", drafts="b" * 32)),
        ("late_reply_refused", decided(held, reason="", outcome="OK", drafts="b" * 32)),
        ("late_reply_refused", decided(held, reason="transport_error")),
        ("newer_staging_intact", decided(released, drafts="b" * 32)),
        ("newer_staging_intact", other_drafts_leave),
        ("newer_staging_intact", no_drafts_ever_after),
    ],
)
def test_a_defect_fails_its_own_subcase_alone(subcase: str, spoil: Callable[[Evidence], object]) -> None:
    assert_flips(Evidence(CHECK), spoil, subcase)


def test_the_late_replys_drafts_that_leave_in_a_later_step_fail() -> None:
    evidence = Evidence(CHECK)
    late = next(
        record.slots[0].drafts
        for record in evidence.records(ON)
        if isinstance(record, seen.Exchanged) and record.reply == "late"
    )
    evidence.change(ON, 0, of_step(seen.Published, released(evidence)), drafts=(late,))
    assert evidence.found()["late_reply_refused"] is Found.FAILED


@pytest.mark.parametrize("arm", [OFF, ON])
def test_a_request_that_ends_early_fails_in_either_arm(arm: str) -> None:
    assert_flips(
        Evidence(CHECK),
        lambda evidence: evidence.change(
            arm,
            HARNESS,
            lambda record: isinstance(record, seen.Completed) and record.request == "disconnect.hold_reply",
            finish="error",
        ),
        "requests_come_through",
    )


@pytest.mark.parametrize("action", ["disconnect_before_final", "disconnect_after_final", "drop_before_final"])
def test_a_fault_that_did_not_strike_at_its_moment_is_not_seen(action: str) -> None:
    gone = Evidence(CHECK)
    gone.drop(ON, 0, lambda record: isinstance(record, seen.Fault) and record.action == action)
    assert_not_seen(gone, action, *WATCHDOG)
    elsewhere = Evidence(CHECK)
    step = step_of_fault(elsewhere, action, "struck")
    moved = step - 3 if action == "disconnect_after_final" else step + 9
    elsewhere.change(
        ON,
        0,
        lambda record: (
            isinstance(record, seen.Fault) and record.action == action and record.moment == "struck"
        ),
        step=moved,
    )
    assert elsewhere.found()[action] is Found.NOT_SEEN


def test_a_reply_that_was_never_released_shows_neither_late_replies_nor_newer_staging() -> None:
    evidence = Evidence(CHECK)
    evidence.drop(ON, 0, lambda record: isinstance(record, seen.Fault) and record.moment == "released")
    assert_not_seen(evidence, "late_reply_refused", "newer_staging_intact", *WATCHDOG)


def test_the_watchdog_keeps_the_check_not_run_with_a_hand_off_too() -> None:
    for capabilities in ((), ("asynchronous_hand_off",)):
        evidence = Evidence(CHECK, Platform(capabilities=capabilities))
        assert_not_seen(evidence, *WATCHDOG)
        assert verdict_of(CHECK, tuple(evidence.judge().values())) is Verdict.NOT_RUN


def test_a_window_that_fits_the_drafter_is_sent_again_whole() -> None:
    assert_not_seen(Evidence(CHECK, Platform(window=32)), *WATCHDOG)
