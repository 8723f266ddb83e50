"""How far two lists of blocks agree."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from reference.replay import TIE_MARGIN_MAX
from x86_worker.drafters.base import Draft


@dataclass
class Agreement:
    """positions: draft positions compared, all of every block.  equal: those with the same id.

    ties, differences: first position of a block that is not equal, by the smaller of the two margins.
    blocks_equal: blocks without one.  confidence, margin: largest difference up to that position.
    """

    blocks: int = 0
    blocks_equal: int = 0
    positions: int = 0
    equal: int = 0
    ties: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    confidence: float = 0.0
    margin: float = 0.0

    @property
    def share(self) -> float:
        """Equal positions of all."""
        return self.equal / self.positions

    def __str__(self) -> str:
        return (
            f"{self.blocks_equal} of {self.blocks} blocks equal, {self.equal} of {self.positions} positions "
            f"({self.share:.4f}), {len(self.ties)} ties, {len(self.differences)} other first differences, "
            f"confidences within {self.confidence:.1e}, margins within {self.margin:.1e}"
        )


def compare(given: Sequence[Draft], expected: Sequence[Draft]) -> Agreement:
    """Block by block."""
    found = Agreement()
    for index, (one, other) in enumerate(zip(given, expected, strict=True)):
        found.blocks += 1
        found.positions += len(other.drafts)
        found.equal += sum(a == b for a, b in zip(one.drafts, other.drafts, strict=True))
        found.blocks_equal += one.drafts == other.drafts
        _compare_block(found, index, one, other)
    return found


def _compare_block(found: Agreement, index: int, one: Draft, other: Draft) -> None:
    for position, (a, b) in enumerate(zip(one.drafts, other.drafts, strict=True)):
        found.confidence = max(found.confidence, abs(one.confidences[position] - other.confidences[position]))
        found.margin = max(found.margin, abs(one.margins[position] - other.margins[position]))
        if a != b:
            smaller = min(one.margins[position], other.margins[position])
            what = f"block {index} position {position}: {a}, expected {b}, margin {smaller:.2e}"
            (found.ties if smaller < TIE_MARGIN_MAX else found.differences).append(what)
            return  # what follows depends on this id
