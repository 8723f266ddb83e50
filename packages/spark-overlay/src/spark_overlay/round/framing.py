"""From pieces of plans to messages.  Marks slots as sent; copies rows only where they wrap in the ring."""

from collections.abc import Sequence

import numpy as np
from ofl.contract.dspark_v1 import EntryFlag, Envelope, Op, Shape, Step, StepEntry, encode_request
from ofl.contract.dspark_v1.rules import first_needed
from ofl.contract.records import Buffer

from spark_overlay.round.counters import Counters
from spark_overlay.round.messages import RoundRequest
from spark_overlay.round.plan import Piece
from spark_overlay.round.ring import Ring, Rows
from spark_overlay.round.session import Frame, SentFrame
from spark_overlay.round.slots import Slot

PARTS_MAX = 60
"""Parts of one frame, at most; the transport takes 64."""


class FrameBuilder:
    """Builds the frames of one step after the other; numbers them for the life of the core."""

    def __init__(self, shape: Shape, slots: Sequence[Slot], ring: Ring, counters: Counters) -> None:
        self._shape = shape
        self._slots = slots
        self._ring = ring
        self._counters = counters
        self._round = 0
        self.requests: Sequence[RoundRequest] = ()
        self.rows: Rows = np.empty((0, shape.row_bytes), np.uint8)

    def begin(self, requests: Sequence[RoundRequest], rows: Buffer) -> None:
        """The step to build from.  Raises ValueError where rows are no whole rows."""
        self.rows = np.frombuffer(rows, np.uint8).reshape(-1, self._shape.row_bytes)
        self.requests = requests

    def end(self) -> None:
        """Let go of the step's buffers."""
        self.requests = ()
        self.rows = self.rows[:0]

    def build(self, pieces: Sequence[Piece], epoch: int, last: bool) -> SentFrame:
        """One frame; drafts are asked for in the last one of a round only."""
        self._round += 1
        entries, rows, held_before = [], [], []
        for piece in pieces:
            held_before.append(-1 if piece.reset else self._slots[piece.plan.slot].held_end)
            entries.append(self._entry(piece, last))
            rows.append(self._row_bytes(piece))
        step = Step(tuple(entries), tuple(rows))
        envelope = Envelope(Op.STEP, epoch, self._round)
        parts = encode_request(envelope, step, self._shape)
        if len(parts) > PARTS_MAX:
            parts = (b"".join(parts),)
        n_bytes = sum(len(part) for part in parts)
        self._count(entries, n_bytes)
        awaited = any(entry.n_out for entry in entries)
        frame = Frame(self._round, parts, n_bytes, awaited)
        slots = frozenset(entry.slot for entry in entries)
        return SentFrame(frame, envelope, Step(step.entries, ()), tuple(pieces), tuple(held_before), slots)

    def _entry(self, piece: Piece, last: bool) -> StepEntry:
        """The entry of a piece; its slot counts as sent from here on."""
        plan, window = piece.plan, self._shape.window
        slot, request = self._slots[plan.slot], self.requests[plan.index]
        slot.sent(piece.first, piece.end, piece.reset, window, self._round)
        n_out = plan.n_out if last else 0
        flags = EntryFlag.RESET if piece.reset else EntryFlag.NONE
        if n_out:
            flags |= EntryFlag.NEED_DRAFT
            if slot.origin > first_needed(window, piece.end):
                flags |= EntryFlag.PARTIAL_WINDOW
        return StepEntry(
            slot=plan.slot,
            flags=flags,
            generation=slot.generation,
            first_position=piece.first,
            n_rows=piece.end - piece.first,
            window_start=slot.origin,
            anchor=request.anchor if n_out else 0,
            n_out=n_out,
        )

    def _row_bytes(self, piece: Piece) -> memoryview:
        """The rows of a piece: from this step's buffer where they all are in it, else from the ring."""
        plan, count = piece.plan, piece.end - piece.first
        if piece.first >= plan.fresh_first:
            at = self.requests[plan.index].row_offset + piece.first - plan.fresh_first
            return self.rows[at : at + count].reshape(-1).data
        return self._ring.read(plan.slot, piece.first, count).reshape(-1).data

    def _count(self, entries: Sequence[StepEntry], n_bytes: int) -> None:
        self._counters.partial_rounds += any(entry.flags & EntryFlag.PARTIAL_WINDOW for entry in entries)
        self._counters.frames_sent += 1
        self._counters.rows_sent += sum(entry.n_rows for entry in entries)
        self._counters.bytes_sent += n_bytes
