"""The figures of a stats file as tables for a person.  Pure: makes renderables, prints nothing.

Every section may be missing, for the file may be an older version's; what is there must be what
docs/operations/stats.md says.
"""

from collections.abc import Mapping
from typing import Any

from ofl.contract.records import printable
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from spark_overlay.stats_file import mappings, number, numbers, section

QUANTILES = ("p50", "p90", "p99", "max")
HEADLINE = (
    "endpoint",
    "policy",
    "shadow_use",
    "on_fail",
    "connected",
    "disabled",
    "epoch",
    "timeout_ms",
    "budget_rows",
)
LAST = ("last_failure", "last_bad_reply", "last_internal_error")
EXAMPLES_SHOWN = 5


def render(stats: Mapping[str, Any]) -> RenderableType:
    """What it is, counters that are not zero, latencies, acceptance, and shadow's agreement where there is one.

    Raises StatsFileError naming a field that is not what it should be.
    """
    acceptance, shadow = section(stats, "acceptance"), section(stats, "shadow")
    parts: list[RenderableType] = [_head(stats)]
    parts += _titled("counters above 0", _counters(section(stats, "counters")))
    parts += _titled("microseconds", _latency(section(stats, "latency")))
    parts += _titled(_acceptance_title(acceptance), _by_position("accepted", "drafted", acceptance))
    if "by_context" in acceptance:
        parts += _titled("acceptance by context length", _by_context(acceptance))
    if shadow:
        parts += _titled(_agreement_title(shadow), _by_position("agreed", "compared", shadow))
        parts += _titled("newest mismatches", _examples(shadow))
    return Group(*parts)


def _titled(title: str, table: Table) -> list[RenderableType]:
    """A table under its title, which may be wider than the table.  One without rows is said in a word."""
    return [Text(), _plain(title), table if table.row_count else Text("none")]


def _add_row(table: Table, *cells: str) -> None:
    """A row of plain text: what a peer called itself is neither markup nor a terminal's control sequence."""
    table.add_row(*(_plain(cell) for cell in cells))


def _plain(text: str) -> Text:
    return Text(printable(text))


def _head(stats: Mapping[str, Any]) -> Table:
    head = Table("", "", show_header=False, box=None)
    if stats.get("acceptance_alarm"):
        _add_row(
            head, "ALARM", "no draft has been accepted for VLLM_DSPARK_REMOTE_ALARM_ROUNDS verified rounds"
        )
    for name in HEADLINE:
        if stats.get(name) not in (None, ""):
            _add_row(head, name, str(stats[name]))
    worker = section(stats, "worker")
    fake = " (its drafts are fake)" if worker.get("fake_drafts") else ""
    _add_row(head, "worker", f"{worker.get('name', 'none yet')}{fake}")
    for name in ("transport", "rank0_buffers", "memory"):
        if facts := section(stats, name):
            _add_row(head, name, ", ".join(f"{key} {_shown(key, value)}" for key, value in facts.items()))
    if breaker := section(stats, "breaker"):
        _add_row(head, "breaker", _breaker(breaker))
    if (reason := stats.get("n_out_reason")) is not None:
        _add_row(head, "n_out", _n_out(numbers(stats, "n_out_by_reqs"), str(reason)))
    for name in LAST:
        if stats.get(name) not in (None, ""):
            _add_row(head, name, str(stats[name]))
    return head


def _shown(name: str, value: object) -> str:
    return decimal(value) if name.endswith("bytes") and isinstance(value, int) else str(value)


def _breaker(breaker: Mapping[str, Any]) -> str:
    if breaker.get("trip") == 0:
        return "off"
    text = f"{breaker.get('state')}, {breaker.get('consecutive_failures')} of {breaker.get('trip')} failures in a row"
    if breaker.get("state") == "open":
        text += f", {breaker.get('cooldown_left')} of {breaker.get('cooldown')} rounds to wait"
    return f"{text}, {breaker.get('trips')} trips"


def _n_out(by_requests: list[float], reason: str) -> str:
    """The table from one running request on; what is not limited needs none."""
    table = ", ".join(
        f"{requests}: {positions:g}" for requests, positions in enumerate(by_requests) if requests
    )
    return f"{table} by running requests ({reason})" if table else f"all positions ({reason})"


def _counters(values: Mapping[str, Any]) -> Table:
    counters = Table("counter", "count")
    counters.columns[1].justify = "right"
    for name, value in values.items():
        if count := number(value, name):
            _add_row(counters, name, f"{count:,.0f}")
    return counters


def _latency(values: Mapping[str, Any]) -> Table:
    latency = Table("latency", "count", *QUANTILES)
    for name in values:
        found = section(values, name)
        count, *quantiles = (number(found.get(key), f"{name}.{key}") for key in ("count", *QUANTILES))
        if count:
            _add_row(latency, name, f"{count:,.0f}", *(f"{value:,.1f}" for value in quantiles))
    return latency


def _acceptance_title(acceptance: Mapping[str, Any]) -> str:
    verified, rate = (number(acceptance.get(name, 0), name) for name in ("verified", "accepted_per_round"))
    return f"{rate:.2f} draft tokens accepted a round, {verified:,.0f} verifications"


def _by_position(part: str, whole: str, data: Mapping[str, Any]) -> Table:
    """Counts and their share by draft position; 0 is the first draft."""
    table = Table("position", part, whole, "share")
    rows = zip(numbers(data, f"{part}_by_position"), numbers(data, f"{whole}_by_position"), strict=False)
    for position, (got, of) in enumerate(rows):
        _add_row(table, str(position), f"{got:,.0f}", f"{of:,.0f}", _share(got, of))
    return table


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _by_context(acceptance: Mapping[str, Any]) -> Table:
    columns = ("context", "verified", "accepted", "drafted", "accepted a round")
    table = Table(*columns)
    for bucket in mappings(acceptance, "by_context"):
        values = [number(bucket.get(name), f"by_context.{name}") for name in ("from", "below", *columns[1:4])]
        first, below, verified, accepted, drafted = values
        counts = (f"{count:,.0f}" for count in (verified, accepted, drafted))
        _add_row(
            table,
            f"{first:.0f} to {below - 1:.0f}",
            *counts,
            f"{accepted / verified:.2f}" if verified else "-",
        )
    return table


def _agreement_title(shadow: Mapping[str, Any]) -> str:
    eligible, share, rate, mismatches, ties = (
        number(shadow.get(name, 0), name)
        for name in ("eligible", "eligible_share", "full_block_agree_rate", "mismatches", "near_ties")
    )
    left_out = ", ".join(f"{name} {count}" for name, count in section(shadow, "ineligible").items() if count)
    return (
        f"shadow: {rate:.3%} of {eligible:,.0f} blocks agree as a whole, {mismatches:,.0f} differ "
        f"({ties:,.0f} of them near ties); {share:.1%} eligible{f' (not: {left_out})' if left_out else ''}"
    )


def _examples(shadow: Mapping[str, Any]) -> Table:
    """The newest mismatches, newest first."""
    table = Table("request", "at", "first", "local", "remote", "margin")
    for example in reversed(mappings(shadow, "examples")[-EXAMPLES_SHOWN:]):
        row = [
            str(example.get(name)) for name in ("request_id", "position", "first_mismatch", "local", "remote")
        ]
        _add_row(table, *row, f"{number(example.get('remote_margin'), 'remote_margin'):.2g}")
    return table
