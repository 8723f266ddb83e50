"""Verification rounds and the figures made of them.  Pure: no torch, no engine.

Owns what is counted and what is left out, for the plain-torch and the engine's measurement alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demo.training.repeats import loop_starts, repeated
from demo.training.settings import BLOCK_TOKENS


@dataclass(frozen=True)
class Round:
    """One verification round: its text, the anchor's position in it, and how many drafts were accepted."""

    row: int
    anchor: int
    accepted: int


def figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """Rounds, mean accepted drafts a round, and the share of rounds that accepted each position."""
    count = len(rounds)
    if not count:
        return {"rounds": 0, "accepted_per_round": None, "accepted_by_position": None}
    by_position = [sum(item.accepted > step for item in rounds) / count for step in range(BLOCK_TOKENS)]
    return {
        "rounds": count,
        "accepted_per_round": round(sum(by_position), 3),
        "accepted_by_position": [round(share, 3) for share in by_position],
    }


def fresh_rounds(rounds: Sequence[Round], texts: np.ndarray[Any, Any]) -> list[Round]:
    """The rounds whose anchor ends no window that occurred before; texts int64 [rows, positions]."""
    again = repeated(texts)
    return [item for item in rounds if not again[item.row, item.anchor]]


def summary(rounds: Sequence[Round], texts: np.ndarray[Any, Any], first: int) -> dict[str, Any]:
    """Three figures for greedy texts int64 [rows, positions] whose prompts end at `first`.

    all: every round; before_loops: without looping tails; fresh: only rounds whose anchor repeats nothing.
    """
    again = repeated(texts)
    starts = loop_starts(texts, first)
    return {
        "all": figures(rounds),
        "before_loops": figures([item for item in rounds if item.anchor < starts[item.row]]),
        "fresh": figures(fresh_rounds(rounds, texts)),
        "repeated_share": round(float(again[:, first:].mean()), 3),
        "looping_texts": int((starts < texts.shape[1]).sum()),
        "looping_share": round(float((texts.shape[1] - starts).sum() / texts[:, first:].size), 3),
    }
