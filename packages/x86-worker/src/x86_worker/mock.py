"""A drafter that makes drafts up: for plumbing without weights, and for tests that must tell exact from not.

A block is a keyed hash of everything that a real drafter would depend on: the identity, the bytes and
positions of every row that it may attend to, the anchor and its position.  An engine test that knows the rows
can therefore say which drafts are right (`mock_block`), and one wrong, missing or misplaced row changes them.
Its facts say `fake`, so the service refuses every policy that would use them.
"""

import hashlib
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ofl.contract.dspark_v1 import RowDtype, RowForm
from ofl.contract.dspark_v1.rules import first_needed
from ofl.contract.identity import UNSTATED, canonical_json
from ofl.contract.records import Buffer

from x86_worker.drafters.base import Context, ContextMisuseError, Draft, DrafterFacts, DraftFailure, DraftWish

ROW_DIGEST_BYTES = 8


@dataclass(frozen=True)
class MockShape:
    """The facts that a mock is given instead of weights.

    row_elements: of a raw row (taps concatenated).  projected_elements: of a projected one.  window: rows, 0
    for all.  identity, markov_identity: None derives them from the rest.
    """

    vocabulary: int
    row_elements: int
    projected_elements: int
    tap_count: int
    block_length: int
    window: int
    max_positions: int
    identity: bytes | None = None
    markov_identity: bytes | None = None
    target_binding: bytes = UNSTATED

    def facts(self) -> DrafterFacts:
        """As the service states them."""
        return DrafterFacts(
            identity=self.identity or self._derived("identity"),
            markov_identity=self.markov_identity or self._derived("markov"),
            target_binding=self.target_binding,
            vocabulary=self.vocabulary,
            row_elements={RowForm.RAW: self.row_elements, RowForm.PROJECTED: self.projected_elements},
            row_dtypes=frozenset(RowDtype),
            window=self.window,
            max_positions=self.max_positions,
            block_length=self.block_length,
            tap_count=self.tap_count,
            context_row_bytes=ROW_DIGEST_BYTES,
            has_confidence=True,
            fake=True,
        )

    def _derived(self, what: str) -> bytes:
        sizes = (self.vocabulary, self.row_elements, self.tap_count, self.block_length, self.window)
        return hashlib.sha256(b"x86-worker-mock\0" + canonical_json([what, *sizes])).digest()


def row_digest(position: int, row: Buffer) -> bytes:
    """What the mock keeps of a row: 8 bytes that depend on its position and every byte of it."""
    return hashlib.blake2b(struct.pack("<I", position) + bytes(row), digest_size=ROW_DIGEST_BYTES).digest()


def mock_block(
    identity: bytes,
    anchor: int,
    anchor_position: int,
    row_digests: Iterable[bytes],
    vocabulary: int,
    n_out: int,
) -> Draft:
    """The block that the mock drafts; row_digests: of the rows that it may attend to, ascending positions."""
    seed = hashlib.blake2b(key=identity, digest_size=32)
    seed.update(struct.pack("<II", anchor, anchor_position))
    for digest in row_digests:
        seed.update(digest)
    drafts, confidences, margins = [], [], []
    for index in range(n_out):
        draw = hashlib.blake2b(seed.digest() + struct.pack("<I", index), digest_size=8).digest()
        token, confidence, margin = struct.unpack("<IHH", draw)
        drafts.append(token % vocabulary)
        # Multiples of 2^-16 and 2^-8: exact in float32, so that they compare equal after the wire.
        confidences.append(confidence / 65536)
        margins.append(margin / 256)
    return Draft(tuple(drafts), tuple(confidences), tuple(margins))


class MockContext:
    """Digests of the rows at positions start .. end-1."""

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        self._start = 0
        self._digests: list[bytes] = []

    @property
    def start(self) -> int:
        return self._start

    @property
    def end(self) -> int:
        return self._start + len(self._digests)

    def append(self, first_position: int, rows: memoryview, n_rows: int) -> None:
        """See `base.Context`."""
        if not self._digests:
            self._start = first_position
        if not self._start <= first_position <= self.end:
            raise ContextMisuseError(f"rows at {first_position} outside {self._start} .. {self.end}")
        size = self._row_bytes
        if len(rows) != n_rows * size:
            raise ContextMisuseError(f"{len(rows)} bytes where {n_rows} rows of {size} are said")
        del self._digests[first_position - self._start :]
        for index in range(n_rows):
            self._digests.append(row_digest(first_position + index, rows[index * size : (index + 1) * size]))

    def drop_before(self, position: int) -> None:
        """See `base.Context`."""
        if not self._start <= position <= self.end:
            raise ContextMisuseError(f"{position} lies outside {self._start} .. {self.end}")
        del self._digests[: position - self._start]
        self._start = position

    def clear(self) -> None:
        """See `base.Context`."""
        self._digests.clear()
        self._start = 0

    def digests_from(self, position: int) -> Sequence[bytes]:
        """Digests of position .. end-1."""
        return self._digests[position - self._start :]


class MockDrafter:
    """Implements `base.Drafter`.  draft_ms: how long a round pretends to take."""

    def __init__(self, shape: MockShape, draft_ms: float = 0.0) -> None:
        self._facts = shape.facts()
        self._draft_ms = draft_ms

    @property
    def facts(self) -> DrafterFacts:
        """What it pretends to be."""
        return self._facts

    def new_context(self, row_form: RowForm, row_dtype: RowDtype) -> Context:
        """An empty context."""
        return MockContext(self._facts.row_elements[row_form] * row_dtype.itemsize)

    def draft(self, wishes: Sequence[DraftWish]) -> list[Draft | DraftFailure]:
        """A block per wish."""
        if self._draft_ms:
            time.sleep(self._draft_ms / 1000)
        return [self._block(wish) for wish in wishes]

    def describe(self) -> dict[str, object]:
        """What STATS shows."""
        return {"kind": "mock", "draft_ms": self._draft_ms}

    def _block(self, wish: DraftWish) -> Draft:
        if not isinstance(wish.context, MockContext):
            raise ContextMisuseError("a context of another drafter")
        first = max(wish.window_start, first_needed(self._facts.window, wish.anchor_position))
        return mock_block(
            self._facts.identity,
            wish.anchor,
            wish.anchor_position,
            wish.context.digests_from(first),
            self._facts.vocabulary,
            wish.n_out,
        )
