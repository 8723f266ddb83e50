"""The figures of a stats file as tables for a person.  Pure: makes renderables, prints nothing.

Every section may be missing, for the file may be an older version's; what is there must be what
docs/operations/stats.md says.
"""

from collections.abc import Mapping
from typing import Any

from ofl.contract.records import printable
from rich.box import HEAVY_HEAD, Box
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from spark_overlay.stats_file import mappings, number, numbers, section

QUANTILES = ("p50", "p90", "p99", "max")
STATE = ("connected", "disabled", "epoch", "budget_rows")
CONFIGURATION = ("endpoint", "policy", "shadow_use", "on_fail", "timeout_ms")
LAST = ("last_failure", "last_bad_reply", "last_internal_error")
EXAMPLES_SHOWN = 5


def render(stats: Mapping[str, Any]) -> RenderableType:
    """What changes first: state, counters that are not zero, acceptance, latencies; then `details`.

    Raises StatsFileError naming a field that is not what it should be.
    """
    acceptance, shadow = section(stats, "acceptance"), section(stats, "shadow")
    parts: list[RenderableType] = [_state(stats)]
    parts += _titled("counters above 0", _counters(section(stats, "counters")))
    parts += _titled(acceptance_title(acceptance), _by_position("accepted", "drafted", acceptance))
    if shadow:
        parts += _titled(agreement_title(shadow), _by_position("agreed", "compared", shadow))
    parts += _titled("microseconds", latency_table(section(stats, "latency")))
    return Group(*parts, *details(stats))


def details(stats: Mapping[str, Any]) -> list[RenderableType]:
    """Acceptance by context, shadow's mismatches, what failed last, and what stays as it is: setup and memory."""
    acceptance, shadow = section(stats, "acceptance"), section(stats, "shadow")
    parts: list[RenderableType] = []
    if "by_context" in acceptance:
        parts += _titled("acceptance by context length", _by_context(acceptance))
    if shadow:
        parts += _titled("newest mismatches", _examples(shadow))
    return [*parts, Text(), _setup(stats)]


def alarm(stats: Mapping[str, Any]) -> list[str]:
    """The warning that stands above everything; none while acceptance is what it should be."""
    if not stats.get("acceptance_alarm"):
        return []
    return ["ALARM no draft has been accepted for VLLM_DSPARK_REMOTE_ALARM_ROUNDS verified rounds"]


def _titled(title: str, table: Table) -> list[RenderableType]:
    """A table under its title, which may be wider than the table.  One without rows is said in a word."""
    return [Text(), plain(title), table if table.row_count else Text("none")]


def add_row(table: Table, *cells: str) -> None:
    """A row of plain text: what a peer called itself is neither markup nor a terminal's control sequence."""
    table.add_row(*(plain(cell) for cell in cells))


def plain(text: str) -> Text:
    """The text without what a terminal would obey."""
    return Text(printable(text))


def _pairs() -> Table:
    return Table("", "", show_header=False, box=None)


def _add_given(table: Table, names: tuple[str, ...], stats: Mapping[str, Any]) -> None:
    for name in names:
        if stats.get(name) not in (None, ""):
            add_row(table, name, str(stats[name]))


def _state(stats: Mapping[str, Any]) -> Table:
    state = _pairs()
    for text in alarm(stats):
        add_row(state, *text.split(" ", 1))
    _add_given(state, STATE, stats)
    if breaker := section(stats, "breaker"):
        add_row(state, "breaker", breaker_words(breaker))
    for name, words in control_words(section(stats, "control")):
        add_row(state, name, words)
    return state


def _setup(stats: Mapping[str, Any]) -> Table:
    setup = _pairs()
    _add_given(setup, LAST, stats)
    _add_given(setup, CONFIGURATION, stats)
    worker = section(stats, "worker")
    fake = " (its drafts are fake)" if worker.get("fake_drafts") else ""
    add_row(setup, "worker", f"{worker.get('name', 'none yet')}{fake}")
    if (reason := stats.get("n_out_reason")) is not None:
        add_row(setup, "n_out", _n_out(numbers(stats, "n_out_by_reqs"), str(reason)))
    for name in ("transport", "rank0_buffers", "memory"):
        if facts := section(stats, name):
            add_row(setup, name, ", ".join(f"{key} {_shown(key, value)}" for key, value in facts.items()))
    return setup


def _shown(name: str, value: object) -> str:
    return decimal(value) if name.endswith("bytes") and isinstance(value, int) else str(value)


def breaker_words(breaker: Mapping[str, Any]) -> str:
    """Where the circuit breaker stands, in words."""
    if breaker.get("trip") == 0:
        return "off"
    text = f"{breaker.get('state')}, {breaker.get('consecutive_failures')} of {breaker.get('trip')} failures in a row"
    if breaker.get("state") == "open":
        text += f", {breaker.get('cooldown_left')} of {breaker.get('cooldown')} rounds to wait"
    return f"{text}, {breaker.get('trips')} trips"


def control_words(control: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What operators asked for and is in effect, then why the file is not obeyed or the cap not held, by name; nothing
    without a control file.
    """
    if not control:
        return []
    words = [str(control.get("state"))]
    if (cap := control.get("depth_max")) is not None:
        words.append(f"{number(cap, 'control.depth_max'):.0f} draft positions at most")
    words += ["not settled yet"] if control.get("pending") else []
    for name in ("pauses", "rearms"):
        if count := number(control.get(name, 0), f"control.{name}"):
            words.append(f"{name} {count:,.0f}")
    reason = f": {control['reason']}" if control.get("reason") else ""
    found = [("control", ", ".join(words) + reason)]
    if control.get("problem"):
        found.append(("control problem", str(control["problem"])))
    if cap is not None and control.get("depth_note"):
        found.append(("control cap", str(control["depth_note"])))
    return found


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
            add_row(counters, name, f"{count:,.0f}")
    return counters


def latency_table(values: Mapping[str, Any], *, box: Box | None = HEAVY_HEAD) -> Table:
    """Microseconds of each latency that was measured.  box: lines drawn around them."""
    latency = Table("latency", "count", *QUANTILES, box=box)
    for name in values:
        found = section(values, name)
        count, *quantiles = (number(found.get(key), f"{name}.{key}") for key in ("count", *QUANTILES))
        if count:
            add_row(latency, name, f"{count:,.0f}", *(f"{value:,.1f}" for value in quantiles))
    return latency


def acceptance_title(acceptance: Mapping[str, Any]) -> str:
    """Draft tokens accepted a round, and over how many verifications."""
    verified, rate = (number(acceptance.get(name, 0), name) for name in ("verified", "accepted_per_round"))
    return f"{rate:.2f} draft tokens accepted a round, {verified:,.0f} verifications"


def _by_position(part: str, whole: str, data: Mapping[str, Any]) -> Table:
    """Counts and their share by draft position; 0 is the first draft."""
    table = Table("position", part, whole, "share")
    rows = zip(numbers(data, f"{part}_by_position"), numbers(data, f"{whole}_by_position"), strict=False)
    for position, (got, of) in enumerate(rows):
        add_row(table, str(position), f"{got:,.0f}", f"{of:,.0f}", share(got, of))
    return table


def share(part: float, whole: float) -> str:
    """A part of a whole in percent; a dash of nothing."""
    return f"{part / whole:.1%}" if whole else "-"


def _by_context(acceptance: Mapping[str, Any]) -> Table:
    columns = ("context", "verified", "accepted", "drafted", "accepted a round")
    table = Table(*columns)
    for bucket in mappings(acceptance, "by_context"):
        values = [number(bucket.get(name), f"by_context.{name}") for name in ("from", "below", *columns[1:4])]
        first, below, verified, accepted, drafted = values
        counts = (f"{count:,.0f}" for count in (verified, accepted, drafted))
        add_row(
            table,
            f"{first:.0f} to {below - 1:.0f}",
            *counts,
            f"{accepted / verified:.2f}" if verified else "-",
        )
    return table


def agreement_title(shadow: Mapping[str, Any]) -> str:
    """How far shadow's two drafters agree, and over how many blocks."""
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
        add_row(table, *row, f"{number(example.get('remote_margin'), 'remote_margin'):.2g}")
    return table
