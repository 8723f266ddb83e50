"""Whether the remote drafter really was in use: what an engine's stats file says of it, now and over a run.

Reads only.  The file is written when an order takes effect, and by rounds, of which the newest may not be in it for ten
seconds: so counters are compared over the whole run alone, and whether drafts are accepted is asked of the engine's
own metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ofl.contract.records import printable

from spark_overlay.bench.errors import BenchRefused
from spark_overlay.stats_file import StatsFileError, number, read_stats, section

FAILED_SHARE_MAX = 0.05
"""Of the rounds that wanted drafts, so many may fail: of a figure that is a mix of both, nobody knows of what."""
FAILED = ("rounds_failed", "rounds_some_failed")


@dataclass(frozen=True)
class Evidence:
    """One reading.  control: the control file that the engine obeys, None without one; state: what is in effect."""

    policy: str
    disabled: str
    connected: bool
    control: Path | None
    state: str
    problem: str
    counters: Mapping[str, float]

    @property
    def rounds(self) -> float:
        """All that were counted."""
        return self.counters.get("rounds", 0.0)


def read_evidence(path: Path) -> Evidence:
    """What a stats file says.  Raises BenchRefused where it cannot be used."""
    try:
        stats = read_stats(path).stats
        control = section(stats, "control")
        counters = {name: number(value, name) for name, value in section(stats, "counters").items()}
    except StatsFileError as error:
        raise BenchRefused(f"the stats file {path}: {error}") from None
    named = control.get("file")
    return Evidence(
        policy=_text(stats, "policy"),
        disabled=_text(stats, "disabled"),
        connected=stats.get("connected") is True,
        control=Path(named) if isinstance(named, str) else None,
        state=_text(control, "state") or "active",
        problem=_text(control, "problem"),
        counters=counters,
    )


def require_usable(path: Path, found: Evidence) -> None:
    """Raise BenchRefused where the engine will not draft remotely at all."""
    if found.disabled:
        raise BenchRefused(
            f"the remote is not used in this run of the engine, as {path} says: {found.disabled}"
        )
    if found.policy == "shadow":
        raise BenchRefused(
            "the engine is in shadow, where both drafters run: a bench of it measures neither of them"
        )


def require_rounds(path: Path, before: Evidence, after: Evidence) -> None:
    """Raise BenchRefused where the rounds between two readings failed in part, or where there were none."""
    changed = {name: value - before.counters.get(name, 0.0) for name, value in after.counters.items()}
    failed = sum(changed.get(name, 0.0) for name in FAILED)
    drafted = changed.get("rounds_ok", 0.0)
    if min(failed, drafted) < 0:
        raise BenchRefused(f"the counters of {path} went back: the engine began anew during the run")
    if drafted == 0:
        raise BenchRefused(
            f"no round with remote drafts was counted in {path}: it is of another engine, or none was"
        )
    if failed > FAILED_SHARE_MAX * (failed + drafted):
        why = ", ".join(
            f"{name} {count:.0f}"
            for name, count in changed.items()
            if count > 0 and name.startswith(("fallback_", "req_status_"))
        )
        raise BenchRefused(
            f"the remote failed in {failed:.0f} of {failed + drafted:.0f} rounds ({why or 'some requests each'}): "
            "ON was a mix of both"
        )


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return printable(value) if isinstance(value, str) else ""
