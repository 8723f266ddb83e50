"""Ranks that schedule, keep, place or own rows differently, and steps in which nothing of the kind happens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from qualification.checks.model import Found, Prompt, Verdict, verdict_of
from qualification.checks.rank_q_kept_position_valid_anchor_owner_agreement import CHECK
from synthetic_evidence import OFF, ON, Evidence, assert_flips, assert_not_seen, of_step, steps_of
from synthetic_parts import Platform

SOLO, PEER, JOINS, NEXT = (f"agreement.{name}" for name in ("solo", "peer", "joins", "next"))
TRIMS = Platform(trims=True, window=16, capabilities=("row_reduction",))
Pick = Callable[[Any], bool]


def at(arm: str, request: str, pick: Pick, rank: int = 1, **changes: Any) -> Callable[[Evidence], object]:
    """A defect in the last step of a request that `pick` picks, on one rank."""

    def spoil(evidence: Evidence) -> object:
        steps = [step for step, entry in steps_of(evidence, arm, request, rank) if pick(entry)]
        return evidence.change_entry(arm, rank, of_step(seen.Scheduled, steps[-1]), request, **changes)

    return spoil


def whole(entry: Any) -> bool:
    """No row of it was rejected or trimmed."""
    return bool(entry.valid == entry.kept == entry.q and entry.sampled)


def rejected(entry: Any) -> bool:
    return bool(entry.valid < entry.kept)


def reads_on(entry: Any) -> bool:
    return not entry.sampled


def last_step_gone(arm: str) -> Callable[[Evidence], object]:
    """Rank 1 does not take the last step."""

    def spoil(evidence: Evidence) -> object:
        last = max(record.step for record in evidence.records(arm, 1) if isinstance(record, seen.Scheduled))
        return evidence.drop(arm, 1, lambda record: getattr(record, "step", 0) == last)

    return spoil


def order_swapped(evidence: Evidence) -> object:
    """Rank 1 has the requests of a step in another order, and hands their drafts over in it."""

    def swapped(record: Any) -> tuple[Any, ...]:
        return tuple(reversed(record.requests))

    step = next(step for step, entry in steps_of(evidence, ON, JOINS) if reads_on(entry))
    return evidence.change(ON, 1, of_step(seen.Scheduled, step), requests=swapped)


def on_both(
    first: Callable[[Evidence], object], second: Callable[[Evidence], object]
) -> Callable[[Evidence], object]:
    return lambda evidence: (first(evidence), second(evidence))


def life_kept(evidence: Evidence) -> object:
    """On both ranks a slot's next request goes on in the life of the one before."""
    life = steps_of(evidence, ON, "agreement.cancelled")[0][1].life
    steps = {step for step, _ in steps_of(evidence, ON, NEXT)}
    for rank in (0, 1):
        evidence.change_entry(
            ON, rank, lambda r: isinstance(r, seen.Scheduled) and r.step in steps, NEXT, life=life
        )
    return evidence


@pytest.mark.parametrize(
    ("subcase", "spoil"),
    [
        ("same_steps", last_step_gone(ON)),
        ("same_steps", last_step_gone(OFF)),
        ("same_steps", order_swapped),
        ("q", at(ON, SOLO, reads_on, q=lambda e: e.q - 1, kept=lambda e: e.kept)),
        ("kept", at(OFF, NEXT, whole, kept=lambda e: e.kept + 1, q=lambda e: e.q)),
        ("valid", at(ON, NEXT, whole, valid=lambda e: e.valid + 1)),
        ("anchor", at(ON, NEXT, whole, anchor="f" * 32)),
        ("anchor", at(ON, SOLO, reads_on, 0, anchor="f" * 32)),
        ("owner", at(ON, NEXT, whole, slot=3)),
        (
            "rejected_rows",
            at(ON, PEER, rejected, valid=lambda e: e.valid - 1, sampled=lambda e: e.sampled - 1),
        ),
        ("mixed_step", at(ON, JOINS, reads_on, verified=1)),
        ("slot_reuse", life_kept),
    ],
)
def test_a_defect_fails_its_own_subcase_alone(subcase: str, spoil: Callable[[Evidence], object]) -> None:
    if subcase in ("q", "kept"):
        # A count that is wrong alone does not add up either, so more than its own subcase says so.
        evidence = Evidence(CHECK)
        spoil(evidence)
        assert evidence.found()[subcase] is Found.FAILED
        return
    assert_flips(Evidence(CHECK), spoil, subcase)


def test_positions_that_differ_or_leave_a_gap_fail() -> None:
    later = at(ON, SOLO, whole, first_position=lambda e: e.first_position + 1)
    assert_flips(Evidence(CHECK), later, "position")
    both = on_both(later, at(ON, SOLO, whole, 0, first_position=lambda e: e.first_position + 1))
    assert_flips(Evidence(CHECK), both, "position")


def test_a_step_beyond_the_budget_fails() -> None:
    more: dict[str, Any] = {
        "q": lambda e: e.q + 1,
        "kept": lambda e: e.kept + 1,
        "valid": lambda e: e.valid + 1,
    }
    later: dict[str, Any] = {"first_position": lambda e: e.first_position + 1}
    before = Evidence(CHECK).found()
    evidence = Evidence(CHECK)
    chunk, *rest = (step for step, _ in steps_of(evidence, ON, SOLO))
    for rank in (0, 1):
        evidence.change_entry(ON, rank, of_step(seen.Scheduled, chunk), SOLO, **more)
        evidence.change_entry(
            ON, rank, lambda r: isinstance(r, seen.Scheduled) and r.step in rest, SOLO, **later
        )
    assert evidence.found() == {**before, "solo_q": Found.FAILED}


def test_trimmed_rows_are_compared_by_themselves() -> None:
    fewer = at(
        ON,
        SOLO,
        lambda e: e.kept < e.q,
        kept=lambda e: e.kept - 1,
        valid=lambda e: e.valid - 1,
        first_position=lambda e: e.first_position + 1,
    )
    assert_flips(Evidence(CHECK, TRIMS), fewer, "row_reduction")


def test_what_did_not_occur_is_not_seen() -> None:
    def short_alone(engine: Any) -> None:
        engine.submit(SOLO, Prompt(20, seed=1), 8)
        engine.run()

    assert_not_seen(Evidence(CHECK), "row_reduction")
    assert_not_seen(Evidence(CHECK, TRIMS))
    assert_not_seen(Evidence(CHECK, drive=short_alone), "slot_reuse", "mixed_step", "solo_q", "row_reduction")
    accepts_all = replace(TRIMS, accepts=(5,))
    # Dummy drafts of the first step after a prompt do not exist here, so nothing is rejected.
    assert "rejected_rows" in {
        name for name, found in Evidence(CHECK, accepts_all).found().items() if found is Found.NOT_SEEN
    }


def test_a_platform_that_trims_no_rows_keeps_the_check_not_run() -> None:
    assert verdict_of(CHECK, tuple(Evidence(CHECK).judge().values())) is Verdict.NOT_RUN
    assert verdict_of(CHECK, tuple(Evidence(CHECK, TRIMS).judge().values())) is Verdict.PASS


def test_two_requests_in_one_slot_fail() -> None:
    def shared(evidence: Evidence) -> None:
        step = next(step for step, entry in steps_of(evidence, ON, JOINS) if reads_on(entry))
        for rank in (0, 1):
            evidence.change_entry(ON, rank, of_step(seen.Scheduled, step), JOINS, slot=0)

    evidence = Evidence(CHECK)
    shared(evidence)
    assert evidence.found()["owner"] is Found.FAILED
