"""Counters of runs that share a folder of evidence: none is used twice, whatever became of the run."""

from pathlib import Path

import pytest
from one_check import CHECK, MakeRun
from qualification.receipts.run_record import RUN_FILE
from qualification.runs import folder
from qualification.runs.folder import RunError
from qualification.runs.platform import Platform
from qualification.runs.window import Limits


def begin(evidence: Path, run_id: str, platform: Platform, counter_first: int | None) -> int:
    run = folder.begin(evidence, run_id, platform, [CHECK], Limits(60, 60, 60), bytes(32), counter_first)
    run.close()
    return int(run.record.counter_first)


def test_a_run_begins_where_the_last_one_that_was_begun_ends(
    make_run: MakeRun, simulator: Platform, tmp_path: Path
) -> None:
    assert folder.next_counter(tmp_path / "evidence") == 1
    assert make_run(simulator).record.counter_first == "1"
    # Under way, and with one check: it keeps one counter.
    assert make_run(simulator).record.counter_first == "2"
    assert begin(tmp_path / "evidence", "later", simulator, 40) == 40
    assert begin(tmp_path / "evidence", "last", simulator, None) == 41


def test_a_counter_of_another_run_is_refused_before_anything_is_written(
    make_run: MakeRun, simulator: Platform, tmp_path: Path
) -> None:
    make_run(simulator)
    with pytest.raises(
        RunError, match=r"^counter 1 is another run's in .*evidence: .* begin at 2 from here on\.$"
    ):
        begin(tmp_path / "evidence", "again", simulator, 1)
    assert [path.name for path in (tmp_path / "evidence").iterdir()] == ["run0.partial"]
    assert not folder.logs_of(tmp_path / "evidence", "again").exists()


def test_a_run_that_does_not_say_its_counters_keeps_others_from_beginning(
    make_run: MakeRun, simulator: Platform, tmp_path: Path
) -> None:
    (make_run(simulator).root / RUN_FILE).unlink()
    with pytest.raises(RunError, match=r"run0\.partial does not say which counters it has"):
        begin(tmp_path / "evidence", "next", simulator, None)


def test_a_counter_that_leaves_none_for_each_receipt_is_refused_before_the_run(
    simulator: Platform, tmp_path: Path
) -> None:
    evidence = tmp_path / "evidence"
    for run_id, counter in (("last", 2**64), ("long", 10**30)):
        with pytest.raises(RunError, match=rf"^counter {counter} leaves none for each of 1 receipts"):
            begin(evidence, run_id, simulator, counter)
    assert not evidence.exists()
    assert begin(evidence, "last", simulator, 2**64 - 1) == 2**64 - 1


def test_a_name_that_no_run_can_have_is_one_sentence(simulator: Platform, tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        begin(tmp_path / "evidence", "../x", simulator, None)
    assert str(caught.value) == (
        "the run '../x' cannot be declared: field run_id is '../x': should be an identifier of letters, digits and"
        " _ . + -."
    )
