"""What the runner makes: verdict, counts and class follow, and nothing is signed that would be refused."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from qualification.checks.model import Conclusion, Found, Verdict
from qualification.checks.registry import all_checks
from qualification.receipts import Place, ReceiptError, Violation, arm_record, build, not_seen, sign
from qualification.receipts.making import declaration, line
from qualification.receipts.platforms import NATIVE_VERSIONS, FactsError, arm_declaration
from qualification.receipts.statement import EvidenceClass, Statement
from receipt_corpus import sound
from spark_overlay.vllm_seam.versions import SEAMS


def made(check: Any = sound.PASSES, **fields: Any) -> Statement:
    """A receipt of `check`, all of it sound but for what is given."""
    given: dict[str, Any] = {
        "subjects": sound.SUBJECTS,
        "off": sound.native(check.off, ("off",)),
        "on": sound.native(check.on, ("on",)),
        "conclusions": sound.conclusions(check),
        "evidence": sound.statements(sound.run_record())[0].predicate.evidence,
        "window": sound.WINDOW,
        "thresholds": check.thresholds,
    }
    return build(check, sound.run_record(), Place(1), **(given | fields))


def test_the_verdict_and_the_counts_follow_from_the_conclusions() -> None:
    concluded = [Conclusion("short", Found.FAILED, "No.", 3), Conclusion("long", Found.NOT_SEEN, "Never.")]
    predicate = made(conclusions=concluded).predicate
    assert predicate.verdict is Verdict.FAIL
    assert predicate.coverage.model_dump() == {
        "declared": 2,
        "passed": 0,
        "failed": 1,
        "not_run": 1,
        "hold": 0,
    }


def test_conclusions_that_are_not_the_declared_ones_make_hold_and_a_note() -> None:
    predicate = made(conclusions=sound.conclusions(sound.PASSES)[:1]).predicate
    assert predicate.verdict is Verdict.HOLD
    assert predicate.coverage.hold == 1
    assert predicate.notes


def test_a_reason_to_hold_outweighs_what_passed() -> None:
    predicate = made(hold="the ranks contradict each other").predicate
    assert predicate.verdict is Verdict.HOLD
    assert predicate.notes == ("the ranks contradict each other",)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"evidence": []}, "evidence_none"),
        ({"off": sound.native(sound.LOCAL, ())}, "arm_not_started"),
        ({"off": sound.native(sound.LOCAL, ("on",))}, "start_ids"),
        ({"thresholds": {}}, "thresholds"),
        ({"subjects": [sound.SUBJECTS[0], sound.SUBJECTS[0]]}, "duplicate_subject"),
    ],
)
def test_what_a_rule_refuses_is_not_made(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(ReceiptError) as refused:
        made(**fields)
    assert rule in refused.value.rules


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e16])
def test_a_threshold_that_no_receipt_can_hold_is_not_made(value: float) -> None:
    with pytest.raises(ValidationError):
        made(thresholds={**sound.PASSES.thresholds, "least": value})


def test_what_became_unsound_is_not_signed() -> None:
    statement = made()
    lie = statement.predicate.model_copy(update={"verdict": Verdict.FAIL})
    with pytest.raises(ReceiptError, match="verdict is FAIL; PASS follows"):
        sign(statement.model_copy(update={"predicate": lie}), sound.SIGNER)


def test_sentences_of_checks_become_printable_lines() -> None:
    assert line("one\n two\t\x00three") == "one two three"
    assert line("") == "(nothing said)"
    assert len(line("x" * 5000)) == 1000
    assert made(conclusions=[Conclusion(one.name, Found.PASSED, "a\nb \ud800", 1) for one in sound.SUBCASES])


def test_a_declaration_changes_its_digest_with_everything_that_a_check_asks() -> None:
    check = sound.PASSES
    others = [
        replace(check, name="other"),
        replace(check, arm_variable="other"),
        replace(check, subcases=check.subcases[:1]),
        replace(check, subcases=check.subcases[::-1]),
        replace(check, subcases=(replace(check.subcases[0], asks="Other?"), check.subcases[1])),
        replace(check, subcases=(check.subcases[0], replace(check.subcases[1], needs=""))),
        replace(check, thresholds={**check.thresholds, "least": 39}),
    ]
    digests = {declaration(one).digest for one in (check, *others)}
    assert len(digests) == len(others) + 1
    assert declaration(replace(check, seconds=1.0)).digest == declaration(check).digest


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.name)
def test_every_check_can_have_a_receipt_that_says_it_did_not_run(check: Any) -> None:
    run = sound.run_record().model_copy(
        update={
            "declared_checks": (check.name,),
            "arms": (arm_declaration(check.off), arm_declaration(check.on)),
        }
    )
    statement = build(
        check,
        run,
        Place(1),
        subjects=sound.SUBJECTS,
        off=arm_record(check.off, []),
        on=arm_record(check.on, []),
        conclusions=not_seen(check, "It was not begun."),
        evidence=[],
        window=sound.WINDOW,
        thresholds=check.thresholds,
    )
    assert statement.predicate.verdict is Verdict.NOT_RUN
    assert statement.predicate.evidence_class is EvidenceClass.REHEARSAL


def test_an_arm_states_one_device_per_rank_and_all_of_its_starts() -> None:
    facts = [sound.facts(sound.REMOTE_2, start, rank) for start in ("b", "a") for rank in (1, 0)]
    record = arm_record(sound.REMOTE_2, facts)
    assert record.starts == ("b", "a")
    assert record.platform is not None
    assert len(record.platform.devices) == 2


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ([sound.facts(sound.LOCAL, "a")], "arm"),
        ([sound.facts(sound.REMOTE_2, "a", 0)], "rank"),
        ([sound.facts(sound.REMOTE_2, "a", 0), sound.facts(sound.REMOTE_2, "a", 0)], "rank"),
        (
            [
                sound.facts(sound.REMOTE_2, "a", 0),
                replace(sound.facts(sound.REMOTE_2, "a", 1), engine_version="0.32.0"),
            ],
            "engine_version",
        ),
        (
            [
                *(sound.facts(sound.REMOTE_2, "a", rank) for rank in (0, 1)),
                *(sound.facts(sound.REMOTE_2, "b", rank, device="NVIDIA H200") for rank in (0, 1)),
            ],
            "start_id",
        ),
    ],
)
def test_facts_that_contradict_each_other_are_refused_by_field(facts: list[Any], field: str) -> None:
    with pytest.raises(FactsError, match=f"^{field}: "):
        arm_record(sound.REMOTE_2, facts)


def test_native_versions_are_those_that_the_overlay_supports() -> None:
    assert tuple(sorted(SEAMS)) == NATIVE_VERSIONS


def test_a_violation_says_where_what_and_why() -> None:
    assert str(Violation("verdict", "it lies", "a.json")) == "a.json: [verdict] it lies"
    assert str(Violation("verdict", "it lies")) == "[verdict] it lies"
