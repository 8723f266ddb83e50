"""Texts and their comparison: pure.

Two continuations are equal when their token ids are.  Where they part, the margin of the plain engine's choice tells a
tie from a fault: below TIE_MARGIN the two best logits were as good as equal.  A tie is shown and is still unequal.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

TIE_MARGIN = 1e-4
"""Logits; the two best closer than this are a tie."""


@dataclass
class Text:
    """One prompt and its continuation.

    ordered: tokens that were asked for; cut: the order was taken back before they all came.
    ids: token ids; margins: logits, one per id (of the plain engine only); latest: the newest piece of text.
    """

    prompt: str
    ids: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    text: str = ""
    latest: str = ""
    ordered: int = 0
    cut: bool = False

    @property
    def due(self) -> int:
        """Tokens that another engine must be asked for, so that a text that ended too early does not pass as equal."""
        return len(self.ids) if self.cut else self.ordered

    def collect(self, events: Iterable[dict[str, Any]], told: Callable[[], None]) -> float:
        """Take an engine's events as they come, calling told after each; seconds from the first to the last."""
        first = last = 0
        for event in events:
            self.ids += event["ids"]
            self.margins += event["margins"]
            self.latest = event["text"]
            self.text += self.latest
            first, last = first or event["at_ns"], event["at_ns"]
            told()
        return (last - first) / 1e9


@dataclass(frozen=True)
class Difference:
    """Where two continuations part.  position: index of the token; margin: logits, of the plain engine's choice."""

    text: int
    position: int
    margin: float

    @property
    def tie(self) -> bool:
        return self.margin < TIE_MARGIN


def first_differences(drafted: list[Text], plain: list[Text]) -> list[Difference]:
    """The first difference of each pair of texts; an end that comes early counts as one.  Empty: all equal."""
    found = []
    for number, (ours, theirs) in enumerate(zip(drafted, plain, strict=True)):
        if ours.ids == theirs.ids:
            continue
        pairs = zip(ours.ids, theirs.ids, strict=False)
        position = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours.ids), len(theirs.ids)))
        margin = theirs.margins[position] if position < len(theirs.margins) else float("inf")
        found.append(Difference(number, position, margin))
    return found
