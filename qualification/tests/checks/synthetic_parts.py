"""What the synthetic engine is made of: requests, platforms, tags and lines."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from ofl.contract import observation_v1 as seen
from qualification.checks.model import FaultOrder

SLOTS = 4
STEP_NS = 15_000_000
RECONNECT_STEPS = 2
TRIMMED_TO = 16
"""Rows that a target keeps of a longer step of a prompt, where it trims."""


def tag(*parts: object) -> str:
    """32 hex digits that stand for the content named."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@dataclass
class Request:
    """One request.  computed: rows.  said: tokens.  drafts: to be verified next, 0 where none are.

    held_end: the worker holds rows up to there, -1 where it holds nothing.
    """

    name: str
    prompt: int
    max_tokens: int
    at_step: int
    cancel_after: int = -1
    fault: FaultOrder | None = None
    slot: int = -1
    life: int = 0
    generation: int = 0
    computed: int = 0
    said: int = 0
    drafts: int = 0
    remote: bool = False
    held_end: int = -1
    rounds: int = 0


@dataclass
class Platform:
    """What the arms of a test run on.  accepts: of K drafts, by turns.  tables: engines of table arms have them."""

    budget: int = 192
    block: int = 5
    window: int = 0
    trims: bool = False
    accepts: tuple[int, ...] = (5, 2, 0, 3)
    capabilities: tuple[str, ...] = ()
    tables: bool = True


def replaced(slot: seen.ExchangedSlot, **changes: object) -> seen.ExchangedSlot:
    values = {name: getattr(slot, name) for name in seen.ExchangedSlot.__slots__}
    return seen.ExchangedSlot(**(values | changes))


def lines_of(records: Sequence[tuple[int, seen.Record]]) -> list[seen.Observation]:
    return [
        seen.Observation(index, step * STEP_NS + index * 1000, record)
        for index, (step, record) in enumerate(records)
    ]
