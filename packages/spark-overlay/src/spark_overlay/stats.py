"""`spark-overlay stats FILE [--watch]`: shows the stats file for a person.  Reads only."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

REFRESH_S = 1.0
QUANTILES = ("p50", "p90", "p99", "max")
HEADLINE = ("endpoint", "policy", "connected", "disabled", "epoch", "last_failure", "last_bad_reply")


class StatsFileError(Exception):
    """The file cannot be shown; the text says why."""


def read_stats(path: Path) -> Mapping[str, Any]:
    """The figures in a stats file.  Raises StatsFileError where it is missing or not one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StatsFileError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise StatsFileError(f"{path}: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise StatsFileError(f"{path}: not a stats file")
    for name in ("counters", "latency", "acceptance"):
        if name not in data:
            raise StatsFileError(f"{path}: not a stats file, {name!r} is missing")
    return data


def render(stats: Mapping[str, Any]) -> RenderableType:
    """Four tables: what it is, counters that are not zero, latencies, acceptance."""
    head = Table("", "", show_header=False, box=None)
    worker = stats.get("worker") or {}
    for name in HEADLINE:
        if stats.get(name) not in (None, ""):
            head.add_row(name, str(stats[name]))
    head.add_row("worker", str(worker.get("name", "none yet")))
    counters = Table("counter", "count", title="counters above 0", title_justify="left")
    counters.columns[1].justify = "right"
    for name, count in stats["counters"].items():
        if count:
            counters.add_row(name, f"{count:,}")
    latency = Table("latency", "count", *QUANTILES, title="microseconds", title_justify="left")
    for name, values in stats["latency"].items():
        latency.add_row(name, f"{values['count']:,}", *(f"{values[key]:,.1f}" for key in QUANTILES))
    return Group(head, counters, latency, _acceptance(stats["acceptance"]))


def _acceptance(acceptance: Mapping[str, Any]) -> Table:
    rounds = f"{acceptance['verified']:,} verifications"
    title = f"{acceptance['accepted_per_round']:.2f} draft tokens accepted a round, {rounds}"
    table = Table("position", "accepted", "drafted", "share", title=title, title_justify="left")
    rows = zip(
        acceptance["accepted_by_position"],
        acceptance["drafted_by_position"],
        acceptance["rate_by_position"],
        strict=True,
    )
    for position, (accepted, drafted, rate) in enumerate(rows, 1):
        table.add_row(str(position), f"{accepted:,}", f"{drafted:,}", f"{rate:.1%}")
    return table


@click.command("stats")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--watch", is_flag=True, help="Show it again every second until interrupted.")
def stats(file: Path, watch: bool) -> None:
    """Show the figures of an engine's stats file (VLLM_DSPARK_REMOTE_STATS_FILE)."""
    console = Console()
    try:
        if not watch:
            console.print(render(read_stats(file)))
            return
        with Live(render(read_stats(file)), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(REFRESH_S)
                live.update(render(read_stats(file)), refresh=True)
    except StatsFileError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        pass
