"""Prompts from numbers: the same tokens in every arm, on every host.

A prompt is `shared` tokens drawn for its group, then the rest drawn for its seed.  Without a text each token is drawn
evenly from the vocabulary, its first and last few ids left out, since those are often special.  With a text, each part
is a stretch of it that begins where the seed says and goes round at the end: natural words, so that drafts are
accepted.
"""

import random
from collections.abc import Sequence

SPECIAL = 3
"""Ids at the beginning of a vocabulary, and one at its end, that no prompt holds unless a text does."""


class Prompts:
    """text: token ids of the target's vocabulary, empty for drawn ones."""

    def __init__(self, vocabulary: int, text: Sequence[int] = ()) -> None:
        if vocabulary <= SPECIAL + 1:
            raise ValueError(f"a vocabulary of {vocabulary} tokens leaves none to draw from")
        if any(not 0 <= token < vocabulary for token in text):
            raise ValueError(f"the text holds a token that is not of the vocabulary of {vocabulary}")
        self._vocabulary, self._text = vocabulary, text

    def make(self, tokens: int, seed: int, group: int = 0, shared: int = 0) -> list[int]:
        """See `qualification.checks.model.Prompt`."""
        if not 0 <= shared <= tokens or tokens < 1:
            raise ValueError(f"a prompt of {tokens} tokens cannot share {shared}")
        return self._part(f"group {group}", shared) + self._part(f"seed {seed}", tokens - shared)

    def _part(self, name: str, count: int) -> list[int]:
        draw = random.Random(f"qualification prompt {name}")
        if not self._text:
            return [draw.randrange(SPECIAL, self._vocabulary - 1) for _ in range(count)]
        start = draw.randrange(len(self._text))
        return [self._text[(start + at) % len(self._text)] for at in range(count)]
