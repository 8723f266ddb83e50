"""Give the reference drafter what vLLM's speculator saw, as contract rows, and compare what both say."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ofl.contract.dspark_v1 import RowDtype, RowForm
from x86_worker.drafters.base import Context, Draft, Drafter, DraftWish

TIE_MARGIN_MAX = 1e-4
"""Two logits closer than this may swap by rounding; both implementations are right."""

Record = dict[str, np.ndarray]


@dataclass
class Comparison:
    """What a replay found.  Blocks are compared up to a tie, since everything after it depends on it."""

    blocks: int = 0
    positions: int = 0
    ties: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    confidence_difference_max: float = 0.0
    margin_difference_max: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.blocks} blocks, {self.positions} positions, {len(self.ties)} ties, "
            f"{len(self.differences)} differences, confidences within {self.confidence_difference_max:.1e}, "
            f"margins within {self.margin_difference_max:.1e}"
        )


def read_records(path: Path) -> list[Record]:
    """The records of `record_blocks`, in order."""
    with np.load(path) as stored:
        names = sorted(name for name in stored.files if "." in name)
        records: dict[str, Record] = {}
        for name in names:
            step, key = name.split(".")
            records.setdefault(step, {})[key] = stored[name]
    return list(records.values())


def replay(records: list[Record], drafter: Drafter) -> Comparison:
    """Feed every record to contexts as a worker would, one drafting call per record, and compare.

    A record without drafts gives its rows alone.
    """
    contexts: dict[int, Context] = {}
    found = Comparison()
    for step, record in enumerate(records):
        wishes = [_wish(record, index, drafter, contexts) for index in range(len(record["slots"]))]
        if "drafts" not in record:
            continue
        for index, draft in enumerate(drafter.draft(wishes)):
            assert isinstance(draft, Draft), draft
            _compare(found, f"step {step} request {index}", draft, _said(record, index))
    return found


def _wish(record: Record, index: int, drafter: Drafter, contexts: dict[int, Context]) -> DraftWish:
    """Append a request's valid rows to its slot's context; drop what the window no longer needs."""
    slot = int(record["slots"][index])
    first = int(record["starts"][index])
    end = int(record["starts"][index + 1] - record["rejected"][index])
    position = int(record["positions"][first])
    context = contexts.setdefault(slot, drafter.new_context(RowForm.RAW, RowDtype.FLOAT32))
    if position == 0:
        context.clear()
    rows = np.ascontiguousarray(record["taps"][first:end])
    context.append(position, memoryview(rows).cast("B"), end - first)
    if drafter.facts.window:
        context.drop_before(max(context.start, context.end - drafter.facts.window))
    length = drafter.facts.block_length
    return DraftWish(context, context.start, int(record["anchors"][index]), context.end, length)


def _said(record: Record, index: int) -> Draft:
    """vLLM's block."""
    return Draft(
        tuple(record["drafts"][index].tolist()),
        tuple(record["confidences"][index].tolist()),
        tuple(record["margins"][index].tolist()),
    )


def _compare(found: Comparison, where: str, ours: Draft, theirs: Draft) -> None:
    found.blocks += 1
    for position, (our_id, their_id) in enumerate(zip(ours.drafts, theirs.drafts, strict=True)):
        found.positions += 1
        confidence = abs(ours.confidences[position] - theirs.confidences[position])
        margin = abs(ours.margins[position] - theirs.margins[position])
        found.confidence_difference_max = max(found.confidence_difference_max, confidence)
        found.margin_difference_max = max(found.margin_difference_max, margin)
        if our_id != their_id:
            smaller = min(ours.margins[position], theirs.margins[position])
            what = f"{where} position {position}: {our_id}, vLLM {their_id}, margin {smaller:.2e}"
            (found.ties if smaller < TIE_MARGIN_MAX else found.differences).append(what)
            return
