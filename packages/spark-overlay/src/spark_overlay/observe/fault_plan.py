"""The plan of the fault seam: a file that the harness writes between cases, read again whenever it changes.

A JSON object a line: `{"case": ..., "request": ..., "action": ..., "hold_steps": ...}`, hold_steps only with
`hold_reply`.  The harness replaces the file as a whole.  An empty file, or none, has no faults.  A fault is armed once
the file is read, at the beginning of a step, strikes once, and is disarmed by a plan that lacks it.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

DROP_BEFORE_FINAL = "drop_before_final"
DISCONNECT_BEFORE_FINAL = "disconnect_before_final"
DISCONNECT_AFTER_FINAL = "disconnect_after_final"
HOLD_REPLY = "hold_reply"
OLD_GENERATION = "old_generation"
ACTIONS = (
    DROP_BEFORE_FINAL,
    DISCONNECT_BEFORE_FINAL,
    DISCONNECT_AFTER_FINAL,
    HOLD_REPLY,
    OLD_GENERATION,
)
HOLD_STEPS_MAX = 10_000


class PlanError(ValueError):
    """The plan cannot be followed; the text names line and field."""


@dataclass(frozen=True)
class FaultOrder:
    """One fault.  request: its owner, as the harness calls it.  hold_steps: engine steps that a reply is held for."""

    case: str
    request: str
    action: str
    hold_steps: int = 0


def read_plan(text: str) -> tuple[FaultOrder, ...]:
    """The faults of a plan.  Raises PlanError."""
    lines = [line for line in text.splitlines() if line.strip()]
    orders = tuple(_order(number, line) for number, line in enumerate(lines, 1))
    if len(set(orders)) < len(orders):
        raise PlanError("a fault is there twice")
    return orders


def _order(number: int, line: str) -> FaultOrder:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise PlanError(f"line {number} is not JSON") from None
    if not isinstance(values, dict) or not values.keys() <= {"case", "request", "action", "hold_steps"}:
        raise PlanError(f"line {number}: an object of case, request, action and hold_steps is needed")
    for name in ("case", "request", "action"):
        if not isinstance(values.get(name), str) or not values[name]:
            raise PlanError(f"line {number}: {name} must be a text")
    if values["action"] not in ACTIONS:
        raise PlanError(f"line {number}: {values['action']!r} is no action")
    held, least = values.get("hold_steps", 0), int(values["action"] == HOLD_REPLY)
    if type(held) is not int or not least <= held <= HOLD_STEPS_MAX:
        raise PlanError(f"line {number}: hold_steps must be {least} to {HOLD_STEPS_MAX}")
    return FaultOrder(values["case"], values["request"], values["action"], held)


class PlanFile:
    """The file as it stands.  `changed` says what it holds when it is another one than before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()

    def changed(self) -> tuple[FaultOrder, ...] | None:
        """Its faults where the file is new or another one; None where it is the same.  Raises PlanError, OSError."""
        try:
            found = os.stat(self._path)
            seen: tuple[int, ...] = (found.st_ino, found.st_size, found.st_mtime_ns)
        except FileNotFoundError:
            seen = ()
        if seen == self._seen:
            return None
        self._seen = seen
        return read_plan(self._path.read_text(encoding="utf-8")) if seen else ()
