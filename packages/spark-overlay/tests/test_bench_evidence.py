"""What a stats file must say for ON to have been ON; counters by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from spark_overlay.bench.arms import OneEngine
from spark_overlay.bench.errors import BenchRefused
from spark_overlay.bench.evidence import Evidence, read_evidence, require_rounds
from spark_overlay.http_api.api import EngineApi

STATS = Path("stats.json")


def evidence(**counters: float) -> Evidence:
    return Evidence("capacity", "", True, None, "active", "", counters)


def test_rounds_that_all_succeeded_or_were_paused_are_fine() -> None:
    before = evidence(rounds_ok=100, rounds_failed=7)
    require_rounds(STATS, before, evidence(rounds_ok=150, rounds_failed=7, rounds_paused=500))


@pytest.mark.parametrize(("failed", "fine"), [(5, True), (6, False)])
def test_one_in_twenty_may_fail(failed: int, fine: bool) -> None:
    after = evidence(
        rounds_ok=100 - failed, rounds_failed=failed, fallback_timeout=failed, fallback_not_ready=0
    )
    if fine:
        require_rounds(STATS, evidence(), after)
        return
    with pytest.raises(BenchRefused) as caught:
        require_rounds(STATS, evidence(), after)
    assert str(caught.value) == (
        "the remote failed in 6 of 100 rounds (fallback_timeout 6): ON was a mix of both"
    )


def test_rounds_in_which_some_requests_failed_are_failed_ones() -> None:
    with pytest.raises(BenchRefused, match="in 10 of 20 rounds"):
        require_rounds(STATS, evidence(), evidence(rounds_ok=10, rounds_some_failed=10))


@pytest.mark.parametrize(
    ("before", "after", "clause"),
    [
        (evidence(rounds_ok=9), evidence(rounds_ok=3), "went back: the engine began anew"),
        (evidence(rounds_ok=9), evidence(rounds_ok=9), "no round with remote drafts was counted"),
    ],
)
def test_counters_that_do_not_grow_prove_nothing(before: Evidence, after: Evidence, clause: str) -> None:
    with pytest.raises(BenchRefused) as caught:
        require_rounds(STATS, before, after)
    assert clause in str(caught.value)


def stats_file(folder: Path, **told: Any) -> Path:
    path = folder / "stats.json"
    path.write_text(json.dumps({"counters": {}, "latency": {}, "acceptance": {}, **told}))
    return path


def test_a_stats_file_of_an_engine_without_a_control_file_says_active(tmp_path: Path) -> None:
    found = read_evidence(stats_file(tmp_path, policy="capacity", control=None))
    assert (found.control, found.state, found.connected) == (None, "active", False)


def test_a_stats_file_that_is_missing_or_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BenchRefused, match=r"nothing\.json: No such file"):
        read_evidence(tmp_path / "nothing.json")
    with pytest.raises(BenchRefused, match="rounds is not a number"):
        read_evidence(stats_file(tmp_path, counters={"rounds": "many"}))


def test_a_control_file_that_cannot_be_read_or_written_is_refused(tmp_path: Path) -> None:
    control = tmp_path / "control.json"
    stats = stats_file(tmp_path, policy="capacity", control={"file": str(control)})
    control.write_text("{")
    control.chmod(0o644)
    with pytest.raises(BenchRefused, match=r"control\.json is not JSON"):
        OneEngine(EngineApi("http://h:1"), control, stats)
    control.unlink()
    engine = OneEngine(EngineApi("http://h:1"), control, stats)
    control.mkdir()
    with pytest.raises(BenchRefused, match=r"control\.json "):
        engine.enter("off")
