"""The corpora: what is sound is accepted; each mutant is refused by its rule and no other, and every rule has one."""

from pathlib import Path
from typing import Any

import pytest
from qualification.checks.model import Verdict
from qualification.receipts import ReceiptError, verify_receipt, verify_run, verify_runs
from qualification.receipts.rules import BY_ID, RULES, STAGES
from receipt_corpus import sound
from receipt_corpus.bench import Bench
from receipt_corpus.mutants import Mutant, every_mutant
from receipt_corpus.of_runs import PAIRS, Pair

from qualification import __version__

MUTANTS = every_mutant()


def describe(path: str, data: bytes) -> dict[str, Any]:
    """As a receipt names a file."""
    [file] = sound.described({path: data})
    return file.model_dump()


@pytest.mark.parametrize("started", [sound.native, sound.simulated])
def test_a_sound_run_is_accepted_with_all_of_its_verdicts(tmp_path: Path, started: sound.Started) -> None:
    run = Bench.make(tmp_path, started=started).verify()
    said = [receipt.predicate.verdict for receipt in run.receipts]
    assert said == [Verdict.PASS, Verdict.FAIL, Verdict.HOLD, Verdict.NOT_RUN, Verdict.PASS]
    assert [receipt.counter for receipt in run.receipts] == [41, 42, 43, 44, 45]


def test_every_receipt_of_a_sound_run_is_accepted_alone(bench: Bench) -> None:
    for place, check in enumerate(sound.CHECKS):
        receipt = verify_receipt(bench.path(place).read_bytes(), sound.KEY, bench.root)
        assert receipt.predicate.check.name == check.name


@pytest.mark.parametrize("data", [b"", b"a picture \xff", b"{}\n", b'{"index":0}', b"x" * 200_000])
def test_evidence_may_hold_other_files_than_observations(bench: Bench, data: bytes) -> None:
    (bench.root / "plot.png").write_bytes(data)
    bench.predicate()["evidence"].append(describe("plot.png", data))
    bench.publish()
    assert len(bench.verify().receipts[0].predicate.evidence) == 4


def test_a_verdict_may_be_less_than_what_follows_where_a_note_says_why(bench: Bench) -> None:
    bench.predicate(4).update(verdict="HOLD", notes=["somebody touched the engine"])
    bench.publish()
    assert bench.verify().receipts[4].predicate.verdict is Verdict.HOLD


def test_two_sound_runs_go_together(tmp_path: Path) -> None:
    first, second = (
        Bench.make(tmp_path / "first"),
        Bench.make(tmp_path / "second", run_id="run-2", counter=141),
    )
    assert [run.record.run_id for run in verify_runs([first.root, second.root], sound.KEY)] == [
        "run-1",
        "run-2",
    ]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fails_its_rule_and_only_it(bench: Bench, mutant: Mutant) -> None:
    mutant.inflict(bench)
    with pytest.raises(ReceiptError) as refused:
        bench.verify()
    assert refused.value.rules == {mutant.rule}, str(refused.value)
    for violation in refused.value.violations:
        assert violation.sentence
        assert "\n" not in str(violation)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_runs_that_do_not_go_together_fail_one_rule_though_each_is_sound(tmp_path: Path, pair: Pair) -> None:
    roots = pair.make(tmp_path)
    for root in roots:
        verify_run(root, sound.KEY)
    with pytest.raises(ReceiptError) as refused:
        verify_runs(roots, sound.KEY)
    assert refused.value.rules == {pair.rule}, str(refused.value)


def test_every_rule_has_a_mutant_and_every_mutant_a_rule() -> None:
    aimed = {mutant.rule for mutant in MUTANTS} | {pair.rule for pair in PAIRS}
    assert aimed == set(BY_ID)
    assert len(RULES) == len(BY_ID)
    assert {rule.stage for rule in RULES} == set(STAGES)


def test_mutants_are_at_least_sixty_and_each_is_another() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert len(names) >= 60


def test_all_that_is_wrong_is_told_at_once(bench: Bench) -> None:
    bench.predicate(0)["coverage"]["passed"] = 9
    bench.predicate(1)["verdict"] = "PASS"
    bench.publish()
    (bench.root / "observations/off-1-a-0.jsonl").unlink()
    (bench.root / "complete.json").unlink()
    with pytest.raises(ReceiptError) as refused:
        bench.verify()
    assert refused.value.rules == {"coverage_sum", "verdict", "evidence_missing", "incomplete"}


def test_what_cannot_be_read_stands_alone(bench: Bench) -> None:
    bench.predicate(1)["verdict"] = "PASS"
    bench.payload[0] = lambda data: data[:-1]
    bench.publish()
    (bench.root / "complete.json").unlink()
    with pytest.raises(ReceiptError) as refused:
        bench.verify()
    assert refused.value.rules == {"json"}


@pytest.mark.parametrize(
    ("fields", "both"),
    [
        ({"tool_version": "0.2.0"}, ["0.2.0", __version__]),
        ({"tool_version": "0.1.10"}, ["0.1.10", __version__]),
        ({"schema_version": 2, "new_field": 1}, ["2", "1"]),
    ],
)
def test_a_newer_receipt_is_refused_with_both_versions(
    bench: Bench, fields: dict[str, Any], both: list[str]
) -> None:
    bench.predicate().update(fields)
    bench.publish()
    with pytest.raises(ReceiptError) as refused:
        bench.verify()
    [violation] = refused.value.violations
    assert violation.rule == "version"
    for version in both:
        assert f" {version}" in violation.sentence


def test_a_receipt_of_an_older_tool_is_accepted(bench: Bench) -> None:
    for place in range(len(bench.statements)):
        bench.predicate(place)["tool_version"] = "0.0.99"
    bench.run["tool_version"] = "0.0.99"
    bench.publish()
    assert bench.verify().record.tool_version == "0.0.99"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"counter": "041"},
            "field predicate.counter is '041': should be an unsigned 64-bit number in decimal, as text",
        ),
        (
            {"verdict": "OK"},
            "field predicate.verdict is 'OK': input should be 'PASS', 'FAIL', 'NOT RUN' or 'HOLD'",
        ),
        ({"waived": True}, "field predicate.waived is unknown"),
    ],
)
def test_a_wrong_field_is_refused_by_name_value_and_type(
    bench: Bench, fields: dict[str, Any], said: str
) -> None:
    bench.predicate().update(fields)
    bench.publish()
    with pytest.raises(ReceiptError) as refused:
        bench.verify()
    assert [violation.sentence for violation in refused.value.violations] == [said]
