"""How far two answers to one prompt are apart, where they may be compared: up to the first token that differs.

Behind it the engines read different texts, so nothing there says anything about rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from engram_remote.logit_ab.record import Sample


@dataclass(frozen=True)
class Distance:
    """diverged: position of the first token that differs, None where none does.

    delta: largest difference of a log-probability, of any token that both name, at positions up to and including the
    divergence; before it also of a token that one of them leaves out, which is below all that it names there, so that
    the least difference that there can be counts.  prompt_delta: the same over the prompt's own tokens; None where one
    of the two has none.
    """

    diverged: int | None
    delta: float
    prompt_delta: float | None

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return self.diverged is None and self.delta == 0 and not self.prompt_delta


def distance(one: Sample, other: Sample) -> Distance:
    """Between two samples of the same prompt.  Raises ValueError where they are of different ones."""
    if one.prompt_sha256 != other.prompt_sha256:
        raise ValueError(f"prompts {one.prompt} and {other.prompt} are not the same text")
    common = min(len(one.tokens), len(other.tokens))
    diverged = next((at for at in range(common) if one.tokens[at] != other.tokens[at]), None)
    if diverged is None and len(one.tokens) != len(other.tokens):
        diverged = common
    last = common if diverged is None else min(diverged + 1, common)
    deltas = [0.0]
    for at in range(last):
        pair = one.top[at], other.top[at]
        deltas += [abs(pair[0][token] - pair[1][token]) for token in pair[0].keys() & pair[1].keys()]
        if one.tokens[at] == other.tokens[at]:
            deltas.append(abs(one.logprobs[at] - other.logprobs[at]))
            deltas += _left_out(*pair)
    return Distance(diverged, max(deltas), _prompt_delta(one, other))


def _left_out(one: Mapping[str, float], other: Mapping[str, float]) -> list[float]:
    """By how much at least the likely tokens differ that only one of the two names."""
    deltas = []
    for named, rest in ((one, other), (other, one)):
        least = min(rest.values(), default=math.inf)
        deltas += [named[token] - least for token in named.keys() - rest.keys() if named[token] > least]
    return deltas


def _prompt_delta(one: Sample, other: Sample) -> float | None:
    if one.prompt_logprobs is None or other.prompt_logprobs is None:
        return None
    pairs = zip(one.prompt_logprobs, other.prompt_logprobs, strict=True)
    return max((abs(a - b) for a, b in pairs), default=0.0)
