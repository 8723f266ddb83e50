"""What the demo concludes: the figures for --json and for the terminal.  Pure but for the printing and writing."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.drafting import Drafted
from demo.drill import Drill
from demo.options import Options
from demo.processes import DemoError
from demo.texts import Difference, Text, first_differences

_MEASURE = {
    "vllm": "an interpreter on a CPU, no measure of speed",
    "sim": "in simulated time, no measure of speed",
}
_ALONE = {"vllm": "the same engine", "sim": "the simulated target"}


@dataclass(frozen=True)
class Summary:
    """figures: what --json writes; differences: where texts part; passed: whether the demo showed what it claims."""

    figures: dict[str, Any]
    differences: list[Difference]
    passed: bool


def conclude(drafted: Drafted, plain: list[Text], plain_s: float, options: Options) -> Summary:
    """Compare the texts and read the overlay's statistics."""
    differences = first_differences(drafted.texts, plain)
    if "counters" not in drafted.stats:
        raise DemoError("the overlay left no statistics file; its log tells why.")
    counters: dict[str, int] = drafted.stats["counters"]
    tokens = sum(len(text.ids) for text in drafted.texts)
    figures: dict[str, Any] = {
        "engine": options.engine,
        "text_equal": not differences,
        "differences": [
            {
                "text": difference.text,
                "position": difference.position,
                "tie": difference.tie,
                "margin": difference.margin if math.isfinite(difference.margin) else None,
            }
            for difference in differences
        ],
        "tokens": tokens,
        "tokens_per_s": round(tokens / drafted.seconds, 2) if drafted.seconds else 0.0,
        "tokens_per_s_without_drafter": round(tokens / plain_s, 2) if plain_s else 0.0,
        "deadline_ms": options.deadline_ms,
        "rounds_ok": counters["rounds_ok"],
        "rounds_failed": counters["rounds_failed"],
        "fallbacks": fallbacks(counters),
        "resync_rows": counters["resync_rows"],
        "accepted_per_round": drafted.stats["acceptance"]["accepted_per_round"],
        "accepted_by_position": drafted.stats["acceptance"]["rate_by_position"],
        "round_us": {
            part: {name: drafted.stats["latency"][f"{part}_us"][name] for name in ("p50", "p99")}
            for part in ("gather", "wire", "worker")
        },
    }
    if drafted.drill is not None:
        figures["drill"] = drafted.drill.summary()
    return Summary(figures, differences, not differences and _drill_passed(drafted.drill))


def write(summary: Summary, path: Path) -> None:
    """The figures as JSON.  Raises DemoError where they cannot be written, also on a pipe that nobody reads."""
    try:
        # Not blocking, because opening such a pipe would wait for a reader that may never come.
        with open(path, "w", encoding="utf-8", opener=_open_at_once) as file:
            file.write(json.dumps(summary.figures, indent=1) + "\n")
    except OSError as error:
        raise DemoError(f"--json: {path} cannot be written: {error.strerror}.") from error


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def fallbacks(counters: dict[str, int]) -> dict[str, int]:
    """Failed rounds by reason, reasons that never occurred left out."""
    prefix = "fallback_"
    return {name.removeprefix(prefix): n for name, n in counters.items() if name.startswith(prefix) and n}


def _drill_passed(drill: Drill | None) -> bool:
    return drill is None or bool(drill.summary()["completed"])


def show(summary: Summary, console: Console) -> None:
    """The summary as tables."""
    figures = summary.figures
    rounds = figures["rounds_ok"] + figures["rounds_failed"]
    reasons = ", ".join(f"{name} {count}" for name, count in figures["fallbacks"].items()) or "none"
    table = Table(title="Remote drafting", show_header=False, title_justify="left")
    table.add_row(
        "rounds", f"{rounds}: {figures['rounds_ok']} ok, {figures['rounds_failed']} fell back ({reasons})"
    )
    table.add_row("accepted tokens a round", f"{figures['accepted_per_round']:.2f} of the drafts")
    by_position = "  ".join(f"{share:.2f}" for share in figures["accepted_by_position"])
    table.add_row("accepted by position", by_position)
    for part, split in figures["round_us"].items():
        table.add_row(f"{part}, us", f"p50 {split['p50']:.0f}   p99 {split['p99']:.0f}")
    table.add_row("rows sent again after a resync", str(figures["resync_rows"]))
    speed = f"{figures['tokens_per_s']:.1f} (without a drafter {figures['tokens_per_s_without_drafter']:.1f})"
    table.add_row("tokens a second", f"{speed}; {_MEASURE[figures['engine']]}")
    for name, value in figures.get("drill", {}).items():
        table.add_row(f"drill: {name.replace('_', ' ')}", str(value))
    console.print(table)
    _show_proof(summary, console)


def _show_proof(summary: Summary, console: Console) -> None:
    if not summary.differences:
        console.print(
            f"[green]text equal[/green]: all {summary.figures['tokens']} tokens are what "
            f"{_ALONE[summary.figures['engine']]} says without any drafter"
        )
    for difference in summary.differences:
        kind = "a tie" if difference.tie else "a difference"
        console.print(
            f"[red]text not equal[/red]: {kind} in text {difference.text} at token {difference.position}, "
            f"margin {difference.margin:.2e}"
        )
