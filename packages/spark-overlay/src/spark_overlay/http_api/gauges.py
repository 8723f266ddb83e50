"""Whether an engine is idle, read off the text of its /metrics.  Standard library only; pure.

Only the two gauges are read, line by line, so that `probe` needs no parser of Prometheus's format.  An engine with
several cores behind one API (data parallelism) has a line for each: they are added.
"""

import math
import re
from dataclasses import dataclass

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
_LABELS = r'(?:\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\})?'
_LINE = re.compile(rf"({RUNNING}|{WAITING}){_LABELS}[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*")


class GaugesError(ValueError):
    """The text does not tell how many requests there are; the message says why."""


@dataclass(frozen=True)
class Load:
    """Requests that an engine has."""

    running: int
    waiting: int

    @property
    def idle(self) -> bool:
        """Whether there is none."""
        return self.running == 0 and self.waiting == 0

    def __str__(self) -> str:
        return f"{self.running} running and {self.waiting} waiting"


def read_load(text: str) -> Load:
    """The load that the text of /metrics tells.  Raises GaugesError where a gauge is missing or is no count."""
    found: dict[str, int] = {}
    for line in text.split("\n"):
        if (match := _LINE.fullmatch(line)) is not None:
            name = match[1]
            found[name] = found.get(name, 0) + _count(name, match[2])
    for name in (RUNNING, WAITING):
        if name not in found:
            raise GaugesError(f"it has no {name}")
    return Load(found[RUNNING], found[WAITING])


def _count(name: str, text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0 and value == int(value)):
        raise GaugesError(f"{name} is {text[:40]!r}, which counts nothing")
    return int(value)
