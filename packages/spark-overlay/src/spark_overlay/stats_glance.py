"""The figures of a stats file for a terminal that is watched: what changes stands on top, in few lines.

A terminal shows only what its height allows, so the order here is the order of use.  Pure: makes renderables, prints
nothing.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from spark_overlay.stats_file import number, numbers, section
from spark_overlay.stats_view import (
    STATE,
    acceptance_title,
    add_row,
    agreement_title,
    alarm,
    breaker_words,
    control_words,
    details,
    latency_table,
    plain,
    share,
)

ACROSS = 2
"""Counters side by side: two fit on 80 columns."""


def glance(stats: Mapping[str, Any]) -> RenderableType:
    """State, acceptance, latencies and counters in the lines of a small terminal; below them all the rest.

    Raises StatsFileError naming a field that is not what it should be.
    """
    acceptance, shadow = section(stats, "acceptance"), section(stats, "shadow")
    parts: list[RenderableType] = [plain(text) for text in alarm(stats)]
    state = ", ".join(f"{name} {stats[name]}" for name in STATE if stats.get(name) not in (None, ""))
    parts += [plain(state)] if state else []
    if breaker := section(stats, "breaker"):
        parts.append(plain(f"breaker {breaker_words(breaker)}"))
    parts += [plain(f"{name} {words}") for name, words in control_words(section(stats, "control"))]
    parts.append(plain(acceptance_title(acceptance)))
    parts += _by_position("accepted", "drafted", acceptance)
    if shadow:
        parts.append(plain(agreement_title(shadow)))
        parts += _by_position("agreed", "compared", shadow)
    latency = latency_table(section(stats, "latency"), box=None)
    parts += [latency] if latency.row_count else []
    parts += [_counters(section(stats, "counters")), *details(stats)]
    return Group(*parts)


def _by_position(part: str, whole: str, data: Mapping[str, Any]) -> list[RenderableType]:
    """Shares by draft position in one line, from the first draft on; none where nothing was counted."""
    pairs = zip(numbers(data, f"{part}_by_position"), numbers(data, f"{whole}_by_position"), strict=False)
    shares = [share(got, of) for got, of in pairs]
    return [plain(f"{part} by position: {' '.join(shares)}")] if shares else []


def _counters(values: Mapping[str, Any]) -> RenderableType:
    """Those above 0 in their order, side by side; bytes as sizes, for their digits would take the room."""
    cells: list[tuple[str, str]] = []
    for name, value in values.items():
        if count := number(value, name):
            cells.append((name, decimal(int(count)) if name.startswith("bytes_") else f"{count:,.0f}"))
    if not cells:
        return Text("no counter above 0")
    table = Table(*("counter", "count") * ACROSS, show_header=False, box=None, padding=(0, 1, 0, 0))
    for column in table.columns[1::2]:
        column.justify = "right"
    for at in range(0, len(cells), ACROSS):
        add_row(table, *(text for pair in cells[at : at + ACROSS] for text in pair))
    return table
