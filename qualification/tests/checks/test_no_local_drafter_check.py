"""Local drafters that are there, or stand in, where only the remote one should be."""

from collections.abc import Callable
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from qualification.checks.model import Found, Prompt
from qualification.checks.no_local_drafter import CHECK
from synthetic_evidence import OFF, ON, Evidence, assert_flips, assert_not_seen, of_step

FAILS = "nolocal.fails"


def facts(arm: str, **changes: Any) -> Callable[[Evidence], object]:
    return lambda evidence: evidence.change(arm, 0, lambda record: isinstance(record, seen.Facts), **changes)


def held_step(evidence: Evidence) -> int:
    return next(r.step for r in evidence.records(ON) if isinstance(r, seen.Fault) and r.moment == "held")


def local_stands_in(evidence: Evidence) -> object:
    """As policy resilience does: local drafts where the round failed."""
    return evidence.change(ON, 0, of_step(seen.Published, held_step(evidence)), drafts=("a" * 32,))


def local_drafts_verified(evidence: Evidence) -> object:
    return evidence.change(ON, 0, lambda record: isinstance(record, seen.Verified), source="local")


def merged(evidence: Evidence) -> object:
    return evidence.change(ON, 0, lambda record: isinstance(record, seen.Decided), source="merged")


def local_instead(evidence: Evidence) -> object:
    return evidence.change(ON, 0, of_step(seen.Published, held_step(evidence) - 1), drafts=("a" * 32,))


def reply_of_another_round(evidence: Evidence) -> object:
    return evidence.change(ON, 0, of_step(seen.Exchanged, 3), round_echoed=99)


@pytest.mark.parametrize(
    ("subcase", "spoil"),
    [
        ("hooks_see_one", facts(OFF, draft_parameters=0)),
        ("hooks_see_one", facts(OFF, draft_layers=0)),
        ("no_parameters", facts(ON, draft_parameters=1)),
        ("no_layers", facts(ON, draft_layers=1)),
        ("speculator_is_remote", facts(ON, speculator_module="vllm.v1.spec_decode.dspark")),
        ("speculator_is_remote", facts(ON, speculator="")),
        ("no_local_drafts", merged),
        ("no_local_drafts", local_instead),
        ("no_local_drafts", local_drafts_verified),
        ("nothing_stands_in", local_stands_in),
        ("remote_progress", reply_of_another_round),
    ],
)
def test_a_defect_fails_its_own_subcase_alone(subcase: str, spoil: Callable[[Evidence], object]) -> None:
    assert_flips(Evidence(CHECK), spoil, subcase)


def test_zeros_that_the_engine_verified_are_nobodys_drafts() -> None:
    evidence = Evidence(CHECK)
    evidence.change(
        ON, 0, lambda record: isinstance(record, seen.Verified) and not record.accepted, source="none"
    )
    assert_not_seen(evidence)


def test_what_did_not_occur_is_not_seen() -> None:
    def undisturbed(engine: Any) -> None:
        engine.submit(FAILS, Prompt(40, seed=1), 8)
        engine.run()

    assert_not_seen(Evidence(CHECK))
    assert_not_seen(Evidence(CHECK, drive=undisturbed), "nothing_stands_in")


def test_hooks_that_no_draft_left_of_show_nothing() -> None:
    evidence = Evidence(CHECK)
    evidence.change(
        OFF,
        0,
        lambda record: isinstance(record, seen.Published),
        drafts=lambda r: (seen.NO_TAG,) * len(r.drafts),
    )
    assert evidence.found()["hooks_see_one"] is Found.NOT_SEEN
