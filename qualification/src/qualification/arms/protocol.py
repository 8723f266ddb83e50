"""What runner and arm process say to each other: JSON lines, orders to the arm's stdin, events from its stdout.

Orders
    {"order": "case", "name": ..., "check": ..., "requests": [...], "faults": [...]}
    {"order": "quit"}
Events
    {"event": "ready", "facts": {...}}             the engine is up; refused instead where it cannot be
    {"event": "refused", "text": ...}
    {"event": "opened", "request": ...}            the engine took a request
    {"event": "completed", "request": ..., "finish": ..., "output_tokens": ...}
    {"event": "finished", "name": ...}             every request of the case has ended
    {"event": "failed", "text": ...}               the engine raised; the process ends
    {"event": "closed"}                            every file is written; the process ends

Neither side ever sends a token, a draft or a text.  Standard library and `ofl` only.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ofl.contract import observation_v1 as seen

LINE_BYTES_MAX = 1 << 20


class ProtocolError(ValueError):
    """A line is none of this protocol's; the text names what is at fault."""


@dataclass(frozen=True)
class Request:
    """One request of a case.  tokens .. shared: of its prompt, see `checks.model.Prompt`.

    at_step: it begins once so many engine steps of the case have passed.  cancel_after: it is cancelled once so many of
    its tokens are there; 0 for never.
    """

    name: str
    tokens: int
    seed: int
    group: int
    shared: int
    max_tokens: int
    at_step: int = 0
    cancel_after: int = 0


@dataclass(frozen=True)
class FaultOrder:
    """See `checks.model.FaultOrder`."""

    request: str
    action: str
    hold_steps: int


@dataclass(frozen=True)
class CaseOrder:
    """One case.  name: unique in the engine's life."""

    name: str
    check: str
    requests: tuple[Request, ...]
    faults: tuple[FaultOrder, ...] = ()


def case_line(case: CaseOrder) -> dict[str, Any]:
    """The order of a case."""
    return {"order": "case", **asdict(case)}


def read_case(order: Mapping[str, Any]) -> CaseOrder:
    """The case of an order.  Raises ProtocolError."""
    try:
        requests = tuple(Request(**each) for each in order["requests"])
        faults = tuple(FaultOrder(**each) for each in order["faults"])
        return CaseOrder(order["name"], order["check"], requests, faults)
    except (KeyError, TypeError) as error:
        raise ProtocolError(f"this is no case: {error}") from None


def facts_fields(facts: seen.Facts) -> dict[str, Any]:
    """Facts as an event has them."""
    return asdict(facts)


def read_facts(values: Mapping[str, Any]) -> seen.Facts:
    """Facts from an event, judged as a line of observations is.  Raises ProtocolError."""
    line = json.dumps({"index": 0, "time_ns": 0, "kind": seen.Facts.kind, **values}).encode() + b"\n"
    try:
        record = seen.read_line(line).record
    except seen.ObservationError as error:
        raise ProtocolError(f"these are no facts: {error}") from None
    assert isinstance(record, seen.Facts), "its kind says so"
    return record


def write_message(values: Mapping[str, Any]) -> bytes:
    """One line."""
    line = json.dumps(values, separators=(",", ":")).encode() + b"\n"
    assert len(line) <= LINE_BYTES_MAX, f"a line of {len(line)} bytes"
    return line


def read_message(line: bytes) -> dict[str, Any]:
    """What `write_message` wrote.  Raises ProtocolError."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError(f"this is not JSON: {line[:80]!r}") from None
    if not isinstance(values, dict):
        raise ProtocolError(f"an object is needed, not {line[:80]!r}")
    return values
