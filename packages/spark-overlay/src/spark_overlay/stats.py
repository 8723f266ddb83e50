"""`spark-overlay stats FILE [--watch | --prometheus]`: shows the stats file.  Reads only."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from spark_overlay.metrics_command import exposition
from spark_overlay.stats_file import StatsFileError, read_stats, written_at
from spark_overlay.stats_glance import glance
from spark_overlay.stats_view import render

REFRESH_S = 1.0
PLAIN_WIDTH = 120
"""Characters a line where the output is no terminal, whose width nobody knows."""


Layout = Callable[[Mapping[str, Any]], RenderableType]


def view(path: Path, now_s: float, layout: Layout = render) -> RenderableType:
    """The file as the layout has it.  now_s: Unix time.  Raises StatsFileError where it cannot be shown."""
    read = read_stats(path)
    return Group(Text(f"written {max(0.0, now_s - read.written_s):.0f} s ago"), layout(read.stats))


def view_or_waiting(path: Path, now_s: float, layout: Layout = render) -> RenderableType:
    """As `view`, or why there is nothing to show yet: an engine that restarts has no file for a moment."""
    try:
        return view(path, now_s, layout)
    except StatsFileError as error:
        return Text(f"waiting: {path}: {error}")


def watch(path: Path, console: Console, pause: Callable[[], None]) -> None:
    """Show the file again after every pause, for ever: in place on a terminal, else after each change of it.

    A terminal shows what its height allows, the most useful on top, and all of it when the watch ends.
    """
    if console.is_terminal:
        first = view_or_waiting(path, time.time(), glance)
        with Live(first, console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                pause()
                live.update(view_or_waiting(path, time.time(), glance), refresh=True)
    shown: object = ()
    while True:
        if (written_s := written_at(path)) != shown:
            shown = written_s
            console.print(view_or_waiting(path, time.time()))
        pause()


@click.command("stats")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--watch", "watching", is_flag=True, help="Show it again every second until interrupted.")
@click.option("--prometheus", is_flag=True, help="Print it as Prometheus metrics; `metrics` serves them.")
def stats(file: Path, watching: bool, prometheus: bool) -> None:
    """Show the figures of an engine's stats file (VLLM_DSPARK_REMOTE_STATS_FILE)."""
    if watching and prometheus:
        raise click.UsageError("--watch and --prometheus exclude each other")
    if prometheus:
        text, problem = exposition(file)
        click.echo(text, nl=False)
        if problem:
            click.echo(f"spark-overlay: {problem}", err=True)
            sys.exit(1)
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    try:
        if watching:
            watch(file, console, lambda: time.sleep(REFRESH_S))
        console.print(view(file, time.time()))
    except StatsFileError as error:
        raise click.ClickException(f"{file}: {error}") from None
    except KeyboardInterrupt:
        pass
