"""Reads a stats file and checks it: what `stats` shows and `metrics` exports begins here.  Never writes, never waits.

The file comes from another process, perhaps of another version: a section that is not there is tolerated, one that is
not what docs/operations/stats.md says is refused by name.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ofl.files import open_plain, read_bounded

STATS_BYTES_MAX = 16 << 20
"""An engine writes kilobytes: every list in its file has a bound of its own."""

REQUIRED = ("counters", "latency", "acceptance")
"""Sections that every version has written; a file without them is some other JSON."""


class StatsFileError(Exception):
    """The file cannot be used; the text says why, without naming the file."""


@dataclass(frozen=True)
class StatsFile:
    """One reading.  stats: the top level of the file.  written_s: when it was last written, Unix time in seconds."""

    stats: Mapping[str, Any]
    written_s: float


def written_at(path: Path) -> float | None:
    """When the file was last written, Unix time in seconds; None where it cannot be told."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def read_stats(path: Path) -> StatsFile:
    """The figures in a stats file.  Raises StatsFileError where it is missing or not one."""
    try:
        with open_plain(path) as file:
            status = os.fstat(file.fileno())
            data = json.loads(read_bounded(file, STATS_BYTES_MAX))
    except OSError as error:
        raise StatsFileError(str(error.strerror)) from None
    except (ValueError, RecursionError) as error:
        raise StatsFileError(f"not JSON ({error})") from None
    if not isinstance(data, dict):
        raise StatsFileError("not a stats file")
    for name in REQUIRED:
        if name not in data:
            raise StatsFileError(f"not a stats file, {name!r} is missing")
        section(data, name)
    return StatsFile(data, status.st_mtime)


def section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping within a mapping; empty where it is absent or null.  Raises StatsFileError on anything else."""
    value = data.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise StatsFileError(f"{name} is not a mapping")
    return value


def numbers(data: Mapping[str, Any], name: str) -> list[float]:
    """A list of numbers within a mapping; empty where it is absent or null.  Raises StatsFileError on anything else."""
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise StatsFileError(f"{name} is not a list")
    return [number(entry, name) for entry in value]


def mappings(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of mappings in a mapping; empty where it is absent or null.  Raises StatsFileError on anything else."""
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise StatsFileError(f"{name} is not a list of mappings")
    return value


def number(value: Any, name: str) -> float:
    """A number of the file.  Raises StatsFileError, naming it, where it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise StatsFileError(f"{name} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise StatsFileError(f"{name} is too large a number") from None
