"""Which rows of its tables a simulated engine reads for a token: a fixed pure function of the tokens before it.

Standard library only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

NO_ROW = -1
"""Where a sequence is shorter than an n-gram: an id of no rank's rows, which yields zeros."""
GRAMS = (2, 3)
"""Tokens of the n-gram of each hash column, by turns."""
_FACTOR, _ADDED, _WORD = 6364136223846793005, 1442695040888963407, (1 << 64) - 1


def row_id(tokens: Sequence[int], position: int, layer: int, column: int, first: int, rows: int) -> int:
    """Of the token at a position, in one hash column of a layer that owns so many rows from `first` on."""
    gram = GRAMS[column % len(GRAMS)]
    if position + 1 < gram:
        return NO_ROW
    state = layer * len(GRAMS) + column
    for token in tokens[position + 1 - gram : position + 1]:
        state = (state * _FACTOR + token + _ADDED) & _WORD
    return first + (state >> 33) % rows


@dataclass(frozen=True)
class StepTokens:
    """One request of a step: the tokens at computed .. + n_tokens - 1 of all that it has so far.

    decoding: its prompt was read before this step.
    """

    request: str
    tokens: Sequence[int]
    computed: int
    n_tokens: int
    decoding: bool
