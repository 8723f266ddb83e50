"""`stats --watch` on a terminal of 80 columns and 24 rows: what changes is on it, whatever else the file holds."""

import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from spark_overlay.report import write_json
from spark_overlay.round.counters import Counters
from spark_overlay.stats import watch
from spark_overlay.stats_glance import glance
from spark_overlay.stats_view import render

WIDTH, HEIGHT = 80, 24
MINIMUM: dict[str, Any] = {"counters": {}, "latency": {}, "acceptance": {}}
MEMORY = {f"kind_{number}_of_memory_bytes": 1 << 20 for number in range(24)}


def screen(stats: dict[str, Any], layout: Callable[..., Any] = glance) -> list[str]:
    """Every line that it takes on the small terminal, blanks run together."""
    console = Console(file=io.StringIO(), width=WIDTH, height=HEIGHT)
    with console.capture() as capture:
        console.print(layout(stats))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def frames(path: Path, *turns: Callable[[], object]) -> tuple[list[list[str]], list[str]]:
    """The lines of each picture while these things happen, and those left behind at the end; no colours."""
    terminal = io.StringIO()
    console = Console(file=terminal, width=WIDTH, height=HEIGHT, force_terminal=True)
    left, seen, taken = list(turns), 0, []

    def pause() -> None:
        nonlocal seen
        text = terminal.getvalue()
        taken.append(_lines(text[seen:]))
        seen = len(text)
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    with pytest.raises(KeyboardInterrupt):
        watch(path, console, pause)
    return taken, _lines(terminal.getvalue()[seen:])


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text).split("\n")]


@pytest.mark.parametrize("policy", ["capacity", "shadow"])
def test_the_small_terminal_has_what_changes_and_is_never_overrun(
    tmp_path: Path, make_run: Callable[..., Any], policy: str
) -> None:
    path = tmp_path / "s.json"
    stats = make_run(POLICY=policy).eventful().stats() | {"memory": MEMORY}
    write_json(path, stats)
    counters = stats["counters"] | {"rounds": 4321}
    taken, left_behind = frames(path, lambda: write_json(path, stats | {"counters": counters}))
    assert len(taken) == 2
    for picture, rounds in zip(taken, ("10", "4,321"), strict=True):
        assert len(picture) == HEIGHT, "as much as there is room for, and not a line more"
        text = "\n".join(picture)
        assert "..." not in text
        for word in (
            "breaker closed, 1 of 3 failures in a row",
            "draft tokens accepted a round",
            "accepted by position: 75.0% 50.0% 25.0% 25.0%",
            "rtt_us 6 ",
            f"rounds {rounds} rounds_ok 5",
            "fallback_timeout 1",
            "resync_rows 7",
        ):
            assert word in text, word
        assert ("agreed by position: 100.0% 100.0% 75.0% 100.0%" in text) == (policy == "shadow")
        assert "kind_0_of_memory_bytes" not in text
    assert "kind_23_of_memory_bytes" in "\n".join(left_behind), "at the end all of it stays behind"


def test_large_counts_keep_their_line(make_run: Callable[..., Any]) -> None:
    stats = make_run().eventful().stats()
    names = list(Counters().as_dict())
    bytes_ = ("bytes_sent", "bytes_received")
    stats["counters"] = dict.fromkeys(names, 987_654_321) | dict.fromkeys(bytes_, 123_456_789_012_345)
    lines = screen(stats)
    for at in range(0, len(names), 2):
        pair = [f"{name} {'123.5 TB' if name in bytes_ else '987,654,321'}" for name in names[at : at + 2]]
        assert " ".join(pair) in lines


def test_a_pause_stands_among_what_changes_and_so_does_a_file_that_is_not_obeyed() -> None:
    control = {"state": "paused", "reason": "a new kernel", "depth_max": None, "problem": "is a link"}
    lines = screen(MINIMUM | {"control": control})
    at = lines.index("control paused: a new kernel")
    assert lines[at + 1] == "control problem is a link"
    assert at + 1 < lines.index("no counter above 0")


def test_nothing_counted_yet_is_said_and_the_alarm_comes_first(make_run: Callable[..., Any]) -> None:
    assert "no counter above 0" in screen(MINIMUM)
    assert "0.00 draft tokens accepted a round, 0 verifications" in screen(MINIMUM)
    run = make_run(ALARM_ROUNDS="1")
    run.drafter.record_acceptance(0, 4, 100)
    assert screen(run.stats())[0].startswith("ALARM no draft has been accepted")


@pytest.mark.parametrize("layout", [glance, render])
def test_what_stays_as_it_is_comes_after_all_that_changes(
    make_run: Callable[..., Any], layout: Callable[..., Any]
) -> None:
    lines = screen(make_run(POLICY="shadow").eventful().stats() | {"memory": MEMORY}, layout)
    places = [
        next(at for at, line in enumerate(lines) if word in line)
        for word in ("breaker ", "rtt_us", "newest mismatches", "last_failure", "endpoint", "memory ")
    ]
    assert places == sorted(places)


def test_a_watched_terminal_outlives_a_file_of_another_time(tmp_path: Path) -> None:
    path = tmp_path / "s.json"

    def write(rounds: int) -> None:
        write_json(path, MINIMUM | {"counters": {"rounds": rounds}})
        os.utime(path, (rounds, rounds))

    taken, _ = frames(path, lambda: write(111_000), path.unlink, lambda: write(222_000))
    words = [
        "waiting:",
        "rounds 111,000",
        "waiting:",
        "rounds 222,000",
    ]  # a long path begins a line of its own
    assert all(word in "\n".join(picture) for word, picture in zip(words, taken, strict=True))
