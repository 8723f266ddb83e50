"""Made-up prompts of an exact number of tokens, each unlike every other, and the same again from the same seed.

The text is plain words at random, which no prefix cache has seen; the engine's own tokenizer cuts it to size.  What a
model says to it is of no use, and how well a drafter guesses that says little of real requests.
"""

import math
import random
from collections.abc import Callable

WORDS = (
    *(
        "about",
        "after",
        "again",
        "along",
        "and",
        "answer",
        "any",
        "around",
        "ask",
        "back",
        "because",
        "before",
    ),
    *("between", "book", "bring", "build", "but", "call", "change", "city", "close", "cold", "come", "could"),
    *(
        "day",
        "deep",
        "door",
        "down",
        "each",
        "early",
        "end",
        "every",
        "far",
        "few",
        "find",
        "first",
        "follow",
    ),
    *("for", "from", "garden", "give", "great", "green", "ground", "hand", "hard", "hear", "high", "home"),
    *("house", "idea", "into", "keep", "kind", "know", "large", "last", "late", "learn", "leave", "letter"),
    *("light", "line", "little", "long", "look", "make", "many", "mean", "might", "more", "mountain", "move"),
    *(
        "near",
        "never",
        "new",
        "next",
        "night",
        "number",
        "of",
        "often",
        "old",
        "only",
        "open",
        "other",
        "over",
    ),
    *(
        "paper",
        "part",
        "people",
        "place",
        "plan",
        "point",
        "question",
        "quiet",
        "rain",
        "read",
        "right",
        "river",
    ),
    *("road", "room", "said", "same", "school", "second", "see", "ship", "short", "side", "small", "some"),
    *("sound", "stand", "start", "still", "stone", "story", "such", "table", "take", "tell", "than", "that"),
    *(
        "the",
        "their",
        "then",
        "there",
        "these",
        "thing",
        "think",
        "this",
        "through",
        "time",
        "to",
        "together",
    ),
    *(
        "tree",
        "true",
        "turn",
        "under",
        "until",
        "very",
        "walk",
        "wall",
        "water",
        "way",
        "well",
        "what",
        "when",
    ),
    *(
        "where",
        "which",
        "while",
        "white",
        "why",
        "wind",
        "window",
        "with",
        "without",
        "word",
        "work",
        "world",
    ),
)
SENTENCE_WORDS = (4, 16)
ATTEMPTS_MAX = 8
SPARE = 1.2
"""More words than expected are asked for, so that one attempt is mostly enough."""

Tokenize = Callable[[str], list[int]]


class PromptError(Exception):
    """The tokenizer makes no prompt of that size."""


class PromptMaker:
    """Prompts of one seed.  tokenize: the engine's, special tokens of the beginning included."""

    def __init__(self, tokenize: Tokenize, seed: str) -> None:
        self._tokenize = tokenize
        self._seed = seed
        self._words_per_token = 1.0

    def exact(self, name: str, tokens: int) -> tuple[int, ...]:
        """Exactly so many token ids; another name is another prompt.  Raises PromptError and what tokenize raises."""
        for _ in range(ATTEMPTS_MAX):
            words = math.ceil(tokens * self._words_per_token * SPARE) + 8
            ids = self._tokenize(made_up_text(f"{self._seed}/{name}", words))
            if len(ids) >= tokens:
                self._words_per_token = min(1.0, words / len(ids))
                return tuple(ids[:tokens])
            self._words_per_token *= 2
        raise PromptError(f"the engine's tokenizer makes only {len(ids)} tokens of {words} words")


def made_up_text(seed: str, words: int) -> str:
    """Whole sentences of that many words at least.  A text of the same seed and fewer words is its beginning."""
    draw = random.Random(seed)
    sentences = []
    while words > 0:
        length = draw.randint(*SENTENCE_WORDS)
        words -= length
        sentences.append(" ".join(draw.choices(WORDS, k=length)).capitalize() + ".")
    return " ".join(sentences)
