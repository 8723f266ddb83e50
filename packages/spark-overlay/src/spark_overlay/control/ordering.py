"""Orders of operators: written into the control file, and waited for in the figures of the engine.

Owns what an order changes in the record and when it counts as in effect.  Must never wait without a bound.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_overlay.control.files import changed
from spark_overlay.control.record import REARM_MAX, ControlRecord
from spark_overlay.stats_file import StatsFileError, read_stats, section

LOOK_EVERY_S = 0.1
"""How often the figures are looked at; an engine writes them at once when an order takes effect."""
LATER_S = 1e-6
"""Two records never carry the same time: the next digit of a time of today."""


def order(path: Path, reason: str = "", *, rearm: bool = False, **changes: object) -> ControlRecord:
    """Write an order into the control file at path; the record as it stands there now.

    changes: fields of the record that are to change; all others stay, but for the reason.  rearm: with a number that no
    record before has had, also where the file was removed since.  Raises ControlFileError, and nothing is written.
    """

    def ordered(record: ControlRecord) -> ControlRecord:
        now_s = time.time()
        if rearm:
            changes["rearm"] = min(REARM_MAX, max(record.rearm + 1, math.floor(now_s)))
        at = max(now_s, record.written_at + LATER_S)
        return record.changed(reason=reason, written_at=at, written_by_uid=os.getuid(), **changes)

    return changed(path, ordered)


@dataclass(frozen=True)
class Effect:
    """What the figures say of an order.  in_effect: it is, or a later one.  said: one clause for people."""

    in_effect: bool
    said: str


def effect(stats: Mapping[str, Any], ordered: ControlRecord) -> Effect:
    """What an engine's figures say of an order.  Raises StatsFileError on figures that are not what they should be."""
    control = section(stats, "control")
    if not control:
        return Effect(
            False, "this engine has no control file: VLLM_DSPARK_REMOTE_CONTROL_FILE is not set for it"
        )
    seen = control.get("written_at")
    if not isinstance(seen, int | float) or seen < ordered.written_at:
        problem = control.get("problem")
        why = f"the engine refuses its control file {control.get('file')}, which {problem}" if problem else ""
        return Effect(False, why or f"the engine, which reads {control.get('file')}, has not read it yet")
    if control.get("pending"):
        return Effect(False, "the engine is connecting to its worker")
    return Effect(True, "")


def wait_for(
    stats_file: Path,
    ordered: ControlRecord,
    wait_s: float,
    clock_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[Mapping[str, Any] | None, str]:
    """The figures in which an order is in effect, or None and why there are none after wait_s seconds."""
    end_s = clock_s() + wait_s
    while True:
        stats: Mapping[str, Any] = {}
        try:
            stats = read_stats(stats_file).stats
            found = effect(stats, ordered)
        except StatsFileError as error:
            found = Effect(False, f"{stats_file}: {error}")
        if found.in_effect:
            return stats, ""
        if (left_s := end_s - clock_s()) <= 0:
            return None, found.said
        pause(min(LOOK_EVERY_S, left_s))
