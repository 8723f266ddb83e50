"""The interface between the service and a drafter.

Owns the words that both sides use.  Must never import torch or know of sessions, connections or clocks: the
session core imports this file, and every drafter implements it.

One thread uses a drafter and all its contexts.  The service holds one context per slot.  In one round it
appends to several contexts, then asks once for all drafts; what `append` took may be computed as late as
that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ofl.contract.dspark_v1 import RowDtype, RowForm


@dataclass(frozen=True)
class DrafterFacts:
    """What a drafter is, as the service states it to engines.

    identity, markov_identity, target_binding: 32-byte digests of `ofl.contract.identity`.
    vocabulary: draft ids are 0 .. vocabulary-1 in the target's numbering (after d2t).
    row_elements: elements of one context row by the row forms that the drafter takes; a missing form is not
    supported.
    row_dtypes: element types of rows that it takes.
    window: the most rows before the anchor that any query attends to; 0 where some layer attends to all of
    them.
    max_positions: positions are 0 .. max_positions-1.
    block_length: draft positions of a block, N.
    tap_count: target layers that are tapped for a row.
    context_row_bytes: memory that one row of a context takes here, for admission.
    has_confidence: confidences come from a trained head; without one they are all 1.
    fake: drafts are made up and must serve no one but tests.
    """

    identity: bytes
    markov_identity: bytes
    target_binding: bytes
    vocabulary: int
    row_elements: Mapping[RowForm, int]
    row_dtypes: frozenset[RowDtype]
    window: int
    max_positions: int
    block_length: int
    tap_count: int
    context_row_bytes: int
    has_confidence: bool
    fake: bool


class Context(Protocol):
    """The context of one slot: rows at absolute positions start .. end-1, no holes.  Empty: start == end.

    A new context is empty.  The calls may raise ContextMisuseError on arguments that the service must never
    pass; anything else that they raise makes the service clear the context and report the entry as failed.
    """

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    def append(self, first_position: int, rows: memoryview, n_rows: int) -> None:
        """Drop what is held at and after first_position, then take n_rows rows from there on.

        An empty context starts at first_position; otherwise start <= first_position <= end (at start all rows
        are replaced).  n_rows may be 0: only truncate.  rows: contiguous bytes of shape [n_rows,
        row_elements] in the context's row form and dtype, little-endian, of any alignment; valid during the
        call only.
        """

    def drop_before(self, position: int) -> None:
        """Let go of rows before position (start <= position <= end); a drafter may keep their memory for
        later rows.
        """

    def clear(self) -> None:
        """Back to empty, whatever state a failed call left."""


@dataclass(frozen=True)
class DraftWish:
    """One request's wish for a block.

    context: of this drafter; its end is anchor_position.  window_start: lowest position that attention may
    see, which is >= context.start (rows before it are absent, positions stay absolute).  anchor: token id at
    anchor_position.
    n_out: draft positions wanted, 1 .. block_length; the first n_out of the block, computed as if all were.
    """

    context: Context
    window_start: int
    anchor: int
    anchor_position: int
    n_out: int


@dataclass(frozen=True)
class Draft:
    """A block, n_out values each.

    drafts: token ids for anchor_position+1 onwards.  confidences: 0 .. 1.  margins: the draft's logit minus
    the runner-up's, finite and >= 0.
    """

    drafts: tuple[int, ...]
    confidences: tuple[float, ...]
    margins: tuple[float, ...]


@dataclass(frozen=True)
class DraftFailure:
    """No block for this wish (logits that are not finite, say); reason is one clause for the log."""

    reason: str


class Drafter(Protocol):
    """Makes drafts for any number of contexts."""

    @property
    def facts(self) -> DrafterFacts: ...

    def new_context(self, row_form: RowForm, row_dtype: RowDtype) -> Context:
        """An empty context that takes rows of that form and type, both among the facts."""

    def draft(self, wishes: Sequence[DraftWish]) -> list[Draft | DraftFailure]:
        """A result per wish, in order.  An exception fails them all."""

    def describe(self) -> dict[str, object]:
        """What STATS shows of it: plain JSON values (kind, device, dtype, ...)."""


class ContextMisuseError(Exception):
    """The service passed arguments that this interface rules out; a defect of ours, never the peer's
    fault."""
