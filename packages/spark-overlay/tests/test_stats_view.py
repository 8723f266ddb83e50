"""The tables of `spark-overlay stats`: of this version's file, of an older one's, and while there is none."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from spark_overlay.cli import main
from spark_overlay.report import write_json
from spark_overlay.stats import watch
from spark_overlay.stats_view import render

MINIMUM: dict[str, Any] = {"counters": {}, "latency": {}, "acceptance": {}}


def shown(stats: dict[str, Any]) -> str:
    """As on a wide screen."""
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as capture:
        console.print(render(stats))
    return capture.get()


def row(text: str, first: str) -> str:
    """The one line that begins with this cell, its blanks and rules taken out."""
    lines = [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]
    (found,) = [line for line in lines if line == first or line.startswith(f"{first} ")]
    return found


def test_a_shadow_run_shows_its_agreement_and_its_newest_mismatches(make_run: Callable[..., Any]) -> None:
    text = shown(make_run(POLICY="shadow").eventful().stats())
    # Four rounds drafted from a whole window, and one of them differs from position 2 on.
    assert "shadow: 75.000% of 4 blocks agree as a whole, 1 differ" in text
    assert "partial_window 1" in text
    agreement = text[text.index("shadow: 75") :]
    assert row(agreement, "1") == "1 4 4 100.0%"
    assert row(agreement, "2") == "2 3 4 75.0%"
    assert row(agreement, "3") == "3 3 3 100.0%", "compared only where all before it agreed"
    assert "newest mismatches" in agreement
    assert row(agreement, "r0").startswith("r0 "), "the request"


def test_an_open_breaker_shows_how_long_it_waits(make_run: Callable[..., Any]) -> None:
    run = make_run(TRIP="1", COOLDOWN="7")
    run.connect().silent = True
    run.step(2)
    run.step(2)
    assert (
        row(shown(run.stats()), "breaker")
        == "breaker open, 1 of 1 failures in a row, 6 of 7 rounds to wait, 1 trips"
    )
    assert row(shown(make_run(TRIP="0").stats()), "breaker") == "breaker off"


CONTROL: dict[str, Any] = {
    "state": "paused",
    "reason": "a new kernel",
    "depth_max": 3,
    "pending": True,
    "pauses": 2,
    "rearms": 0,
    "problem": "is a link",
    "depth_note": "it plans ahead",
}


def test_what_operators_asked_for_is_shown_with_why_it_is_not_obeyed() -> None:
    text = shown(MINIMUM | {"control": CONTROL})
    assert (
        row(text, "control paused,")
        == "control paused, 3 draft positions at most, not settled yet, pauses 2: a new kernel"
    )
    assert row(text, "control problem") == "control problem is a link"
    assert row(text, "control cap") == "control cap it plans ahead"
    calm = CONTROL | {
        "state": "active",
        "reason": "",
        "depth_max": None,
        "pending": False,
        "problem": "",
        "rearms": 1,
    }
    text = shown(MINIMUM | {"control": calm})
    assert row(text, "control") == "control active, pauses 2, rearms 1"
    assert "plans ahead" not in text, "without a cap there is nothing that could not be held"
    assert "control" not in shown(MINIMUM | {"control": None})


def test_the_table_of_draft_positions_and_its_reason(make_run: Callable[..., Any]) -> None:
    assert row(shown(make_run().stats()), "n_out") == "n_out 1: 4, 2: 4, 3: 2 by running requests (schedule)"
    assert row(shown(make_run(N_OUT="0").stats()), "n_out").startswith("n_out all positions (")


def test_acceptance_by_position_and_by_context(make_run: Callable[..., Any]) -> None:
    text = shown(make_run().eventful().stats())
    assert "1.75 draft tokens accepted a round, 4 verifications" in text
    assert row(text, "0") == "0 3 4 75.0%"
    # Anchors at 8, 13 and 18 accepted 4, 2 and 0 of 4; the one at 102 accepted 1.
    assert row(text, "8 to 15") == "8 to 15 2 6 8 3.00"
    assert row(text, "16 to 31") == "16 to 31 1 0 4 0.00"
    assert row(text, "64 to 127") == "64 to 127 1 1 4 1.00"


def test_memory_and_transport_are_shown_in_words(make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.connect()
    text = shown(run.stats())
    assert row(text, "transport").startswith(
        "transport scheme tcp, wire simulated, authenticated False, version "
    )
    assert "ring_bytes" in row(text, "rank0_buffers")
    assert "MB" in row(shown(MINIMUM | {"memory": {"target_parameter_bytes": 5_000_000}}), "memory")


def test_the_alarm_comes_first(make_run: Callable[..., Any]) -> None:
    run = make_run(ALARM_ROUNDS="2")
    for _ in range(2):
        run.drafter.record_acceptance(0, 4, 100)
    lines = [line for line in shown(run.stats()).splitlines() if line.strip()]
    assert lines[0].startswith(" ALARM")
    run.drafter.record_acceptance(1, 4, 100)
    assert "ALARM" not in shown(run.stats())


def test_an_older_version_s_file_is_shown_as_far_as_it_goes(make_run: Callable[..., Any]) -> None:
    stats = make_run().eventful().stats()
    newer = {
        "shadow_use",
        "on_fail",
        "transport",
        "breaker",
        "acceptance_alarm",
        "shadow",
        "n_out_by_reqs",
        "n_out_reason",
    }
    assert newer < set(stats)
    old = {name: value for name, value in stats.items() if name not in newer}
    old["acceptance"] = {name: value for name, value in stats["acceptance"].items() if name != "by_context"}
    text = shown(old)
    assert "fallback_timeout" in text
    assert row(text, "0") == "0 3 4 75.0%"
    for absent in ("breaker ", "shadow", "by running requests", "context length"):
        assert absent not in text
    assert "0.00 draft tokens accepted a round, 0 verifications" in shown(MINIMUM)


def test_what_a_worker_calls_itself_is_neither_markup_nor_a_control_sequence() -> None:
    text = shown(MINIMUM | {"worker": {"name": "[/bold] \x1b[2J \ud800"}})
    assert row(text, "worker") == "worker [/bold] \ufffd[2J \ufffd"


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"counters": {"rounds": "x"}}, "rounds is not a number"),
        ({"latency": {"rtt_us": {"count": 1}}}, "rtt_us.p50 is not a number"),
        ({"latency": {"rtt_us": 3}}, "rtt_us is not a mapping"),
        ({"control": "paused"}, "control is not a mapping"),
        ({"control": {"state": "active", "depth_max": "x"}}, "control.depth_max is not a number"),
        ({"control": {"state": "active", "rearms": []}}, "control.rearms is not a number"),
        ({"shadow": {"examples": [1]}}, "examples is not a list of mappings"),
        ({"n_out_reason": "x", "n_out_by_reqs": 4}, "n_out_by_reqs is not a list"),
    ],
)
def test_a_field_that_is_not_what_it_should_be_is_named(
    tmp_path: Path, change: dict[str, Any], clause: str
) -> None:
    write_json(tmp_path / "s.json", MINIMUM | change)
    result = CliRunner().invoke(main, ["stats", str(tmp_path / "s.json")])
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path}/s.json: {clause}\n"


class Turns:
    """Stands for the second between two looks: does one thing in each, then ends as Ctrl-C does."""

    def __init__(self, *turns: Callable[[], object]) -> None:
        self._turns = iter(turns)

    def __call__(self) -> None:
        turn = next(self._turns, None)
        if turn is None:
            raise KeyboardInterrupt
        turn()


def watched(path: Path, *turns: Callable[[], object], terminal: bool) -> str:
    """All that is printed while these things happen to the file."""
    screen = io.StringIO()
    console = Console(file=screen, width=120, force_terminal=terminal)
    with pytest.raises(KeyboardInterrupt):
        watch(path, console, Turns(*turns))
    return screen.getvalue()


def write(path: Path, rounds: int) -> None:
    """One more file, each with a time of its own.  From 1,000 on no count can be found in the file's age."""
    write_json(path, MINIMUM | {"counters": {"rounds": rounds}})
    os.utime(path, (rounds, rounds))


@pytest.mark.parametrize("terminal", [False, True], ids=["plain", "terminal"])
def test_watching_outlives_an_engine_that_restarts(tmp_path: Path, terminal: bool) -> None:
    path = tmp_path / "s.json"
    text = watched(
        path,
        lambda: write(path, 111_000),
        path.unlink,
        lambda: path.write_text("{"),
        lambda: write(path, 222_000),
        terminal=terminal,
    )
    places = [text.index(word) for word in ("waiting: ", "rounds", "111,000", "not JSON", "222,000")]
    assert places == sorted(places)
    assert text.count("waiting: ") == 3, "before the first file, without it, and with half of one"


def test_plain_output_is_once_for_each_change_and_holds_no_control_sequence(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write(path, 111_000)
    text = watched(
        path, lambda: None, lambda: None, lambda: write(path, 222_000), lambda: None, terminal=False
    )
    assert (text.count("111,000"), text.count("222,000")) == (1, 1)
    assert "\x1b" not in text


def test_the_command_prints_plain_lines_wide_enough_where_there_is_no_terminal(
    tmp_path: Path, make_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    path = tmp_path / "s.json"
    path.write_text(json.dumps(make_run(POLICY="shadow").eventful().stats()))
    result = CliRunner().invoke(main, ["stats", str(path)])
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert result.output.startswith("written 0 s ago\n")
    assert "local_propose_us" in result.output
