"""Figures: percentiles within their bound, files whole or not at all, tables from any stats file."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ofl.documents import rewritten
from spark_overlay.cli import main
from spark_overlay.docs import parts
from spark_overlay.figures import Figures
from spark_overlay.histogram import Histogram
from spark_overlay.report import log_line, write_json
from spark_overlay.round.counters import Counters
from spark_overlay.stats_file import STATS_BYTES_MAX

DOCS = Path(__file__).parents[3] / "docs/operations"


@given(values=st.lists(st.floats(1.0, 1e8), min_size=1, max_size=200), share=st.floats(0.01, 1.0))
def test_a_percentile_is_within_half_a_bucket_of_the_value_of_its_rank(
    values: list[float], share: float
) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    rank = max(1, -(-share * len(values) // 1))
    exact = sorted(values)[int(rank) - 1]
    assert histogram.percentile(share) == pytest.approx(exact, rel=0.05)
    assert histogram.max_us == max(values)


def test_percentiles_of_known_values() -> None:
    histogram = Histogram()
    values = list(range(1, 1001))
    random.Random(1).shuffle(values)
    for value in values:
        histogram.add(float(value))
    summary = histogram.summary()
    assert summary["count"] == 1000
    assert summary["max"] == 1000.0
    assert summary["p50"] == pytest.approx(500, rel=0.05)
    assert summary["p99"] == pytest.approx(990, rel=0.05)


@pytest.mark.parametrize("value", [0.0, -5.0, float("nan"), 1e300, float("inf")])
def test_any_value_is_counted_and_memory_is_fixed(value: float) -> None:
    histogram = Histogram()
    before = len(histogram._counts)
    histogram.add(value)
    assert histogram.count == 1
    assert len(histogram._counts) == before


def test_an_empty_histogram_says_zero() -> None:
    assert Histogram().summary() == {"count": 0, "sum": 0.0, "p50": 0.0, "p90": 0.0, "p99": 0.0, "max": 0.0}


def a_snapshot() -> dict[str, Any]:
    counters = Counters(rounds=10, rounds_ok=7, rounds_failed=3, fallback_timeout=2, fallback_not_ready=1)
    figures = Figures(counters, alarm_rounds=0, agreement=None)
    figures.add("rtt_us", 123.0)
    figures.acceptance.record(2, 5, 100)
    return {"endpoint": "tcp://h:1", "worker": None, "counters": counters.as_dict(), **figures.snapshot()}


def test_the_log_line_names_the_reasons() -> None:
    line = log_line(a_snapshot())
    assert "7 rounds ok, 3 failed (not_ready 1, timeout 2)" in line
    assert "2.00 accepted a round" in line


def test_the_log_line_leaves_out_latencies_that_were_never_measured() -> None:
    snapshot = a_snapshot()
    assert snapshot["latency"].keys() > {"rtt_us", "local_propose_us"}
    assert log_line(snapshot).endswith("2.00 accepted a round; p50/p99 rtt_us 123/123")
    empty = Figures(Counters(), alarm_rounds=0, agreement=None)
    nothing = log_line({"counters": Counters().as_dict(), **empty.snapshot()})
    assert nothing.endswith("; 0.00 accepted a round")


def test_the_command_shows_a_stats_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_json(path, a_snapshot())
    result = CliRunner().invoke(main, ["stats", str(path)])
    assert result.exit_code == 0, result.output
    for word in ("fallback_timeout", "rtt_us", "100.0%", "tcp://h:1"):
        assert word in result.output
    assert "fallback_busy" not in result.output


@pytest.mark.parametrize(
    ("text", "clause"),
    [(None, "No such file"), ("{", "not JSON"), ("[]", "not a stats file"), ("{}", "'counters' is missing")],
)
def test_a_file_that_is_no_stats_file_is_one_sentence(tmp_path: Path, text: str | None, clause: str) -> None:
    path = tmp_path / "s.json"
    if text is not None:
        path.write_text(text)
    result = CliRunner().invoke(main, ["stats", str(path)])
    assert result.exit_code == 1
    assert clause in result.output
    assert "Traceback" not in result.output


def test_a_stats_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_json(path, a_snapshot())
    with path.open("ab") as file:
        file.truncate(STATS_BYTES_MAX)
        file.seek(0, os.SEEK_END)
        file.write(b" ")
    result = CliRunner().invoke(main, ["stats", str(path)])
    assert result.exit_code == 1
    assert result.output == f"Error: {path}: longer than {STATS_BYTES_MAX} bytes\n"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.json"]


def test_every_counter_has_a_meaning_and_the_documentation_lists_them() -> None:
    assert all(len(meaning) > 10 for meaning in Counters.meanings().values())
    for name, made in parts().items():
        text = (DOCS / name).read_text(encoding="utf-8")
        assert rewritten(text, made) == text, "run python -m spark_overlay.docs docs/operations"


def test_a_page_without_a_generated_part_is_named() -> None:
    with pytest.raises(ValueError, match="there is no part 'counters'"):
        rewritten("nothing", {"counters": "x"})
