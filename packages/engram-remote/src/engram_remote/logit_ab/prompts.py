"""Prompts of given lengths, the same in every run: from a file of texts, or made from a seed."""

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path

from ofl.files import read_plain

from engram_remote.logit_ab.errors import LogitError

LENGTHS = {"short": 64, "8k": 8_192, "32k": 32_768}
"""Tokens that a prompt has, about: at CHARACTERS_PER_TOKEN.  What it really had is in the run's record."""
CHARACTERS_PER_TOKEN = 4
DATA_BYTES_MAX = 1 << 30
FIELDS = ("text", "prompt", "content")
"""Of a line of a file of texts: the first that is there is taken."""
_SYLLABLES = ("ba", "co", "de", "fi", "gu", "ha", "lo", "me", "ni", "po", "ra", "se", "ti", "vo", "wu", "za")


@dataclass(frozen=True)
class Prompt:
    """name: its length's.  text: as sent."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Of the text in UTF-8, as hex digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def make_prompts(lengths: list[str], data: Path | None, seed: int) -> list[Prompt]:
    """One prompt of each length.  data: a JSON Lines file of texts; None: words from the seed.

    Raises LogitError naming the file's line or what it lacks; OSError.
    """
    texts = _texts(data) if data is not None else _generated(seed, max(LENGTHS[name] for name in lengths))
    whole = "\n\n".join(texts)
    made = []
    for name in lengths:
        size = LENGTHS[name] * CHARACTERS_PER_TOKEN
        if len(whole) < size:
            raise LogitError(f"{data}: {len(whole)} characters of text, where prompt {name} needs {size}")
        made.append(Prompt(name, whole[:size]))
    return made


def _texts(data: Path) -> list[str]:
    found = []
    try:
        lines = read_plain(data, DATA_BYTES_MAX).decode().split("\n")
    except UnicodeDecodeError as error:
        raise LogitError(f"{data}: is not text in UTF-8 ({error})") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise LogitError(f"{data}: line {number} is not JSON") from None
        named = [values[name] for name in FIELDS if isinstance(values, dict) and name in values]
        if not (named and isinstance(named[0], str)):
            raise LogitError(f"{data}: line {number} has no text under {', '.join(FIELDS)}")
        if any("\ud800" <= letter <= "\udfff" for letter in named[0]):
            raise LogitError(f"{data}: line {number} has half of a character, which no server could be sent")
        found.append(named[0])
    return found


def _generated(seed: int, tokens: int) -> list[str]:
    """Sentences of made-up words, about as many characters as so many tokens and one sentence more."""
    rng = random.Random(seed)
    found, size = [], 0
    while size < tokens * CHARACTERS_PER_TOKEN:
        words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(rng.randint(5, 14))]
        found.append(" ".join(words).capitalize() + ".")
        size += len(found[-1]) + 2
    return found
