"""A worker for simulations: the real session core over a drafter whose every block can be told right from wrong.

Owns a model made of hashes (a target that is a keyed chain, and a drafter that sees the chain in the rows), the
drafter over it, and a worker process that can die, forget and fail on purpose.  No torch, socket, clock or thread:
the caller passes `now`.

Theory of operation.  The target's state after a token is a keyed hash of the state before it and the token; its next
token is read off the state.  Row p carries the state after position p.  The drafter takes the state from its last row,
so it knows the true continuation, and drafts it but for the positions that a digest of everything it may attend to
(each row with its position, the anchor and its position) picks out.  One row that is wrong, missing, misplaced or old
therefore changes drafts, confidences and margins.  A row also carries which computation made it, because the target
computes the same state again after a preemption: a row of an earlier life must not pass for one of this.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ofl.contract.dspark_v1 import (
    Envelope,
    Kind,
    Op,
    Refused,
    RowDtype,
    RowForm,
    Status,
    encode_reply,
    peek,
)
from ofl.contract.dspark_v1.rules import first_needed
from ofl.contract.records import Buffer

from x86_worker.drafters.base import Context, ContextMisuseError, Draft, DrafterFacts, DraftFailure, DraftWish
from x86_worker.mock import MockContext, MockShape, mock_block, row_digest
from x86_worker.session import DrafterService, Limits
from x86_worker.session.directory import Session

STATE_BYTES = 16
REPEATS = 8
ROW_BYTES = REPEATS * (STATE_BYTES + 8)
"""A row: the state after its position, then the number of the computation that made it; all of that REPEATS times,
so that a few rows fill a message."""
MISSED = 0.25
"""Share of draft positions at which the drafter is wrong."""


@dataclass(frozen=True)
class ChainModel:
    """Target and drafter in one.  window: rows that the drafter attends to, 0 for all.

    Rows are RAW and BFLOAT16, of ROW_BYTES bytes.
    """

    vocabulary: int = 997
    block_length: int = 5
    window: int = 8
    max_positions: int = 224

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return ROW_BYTES

    def facts(self) -> DrafterFacts:
        """As the service states them."""
        elements = ROW_BYTES // RowDtype.BFLOAT16.itemsize
        return MockShape(
            vocabulary=self.vocabulary,
            row_elements=elements,
            projected_elements=elements // 2,
            tap_count=2,
            block_length=self.block_length,
            window=self.window,
            max_positions=self.max_positions,
        ).facts()

    # --- the target ---

    def begin(self) -> bytes:
        """The state before position 0."""
        return bytes(STATE_BYTES)

    def advance(self, state: bytes, token: int) -> bytes:
        """The state after one more token."""
        packed = state + token.to_bytes(4, "little")
        return hashlib.blake2b(packed, key=b"target", digest_size=STATE_BYTES).digest()

    def choose(self, state: bytes) -> int:
        """The target's next token."""
        return int.from_bytes(state[:6], "little") % self.vocabulary

    def row(self, state: bytes, computation: int) -> bytes:
        """The row of the position after which the target is in this state.  computation: 1 .. 2**64-1."""
        return (state + computation.to_bytes(8, "little")) * REPEATS

    # --- the drafter ---

    def digest(self, position: int, row: Buffer) -> bytes:
        """What a block depends on of one row."""
        return row_digest(position, row)

    def block(
        self, digests: Sequence[bytes], last_row: Buffer, anchor: int, anchor_position: int, n_out: int
    ) -> Draft:
        """The one right block.  digests: of the rows that may be attended to, in order; last_row: the last of them."""
        joined, state = b"".join(digests), bytes(last_row[:STATE_BYTES])
        return _block(self, joined, state, anchor, anchor_position, n_out)


@lru_cache(maxsize=64)
def _block(
    model: ChainModel, joined: bytes, state: bytes, anchor: int, anchor_position: int, n_out: int
) -> Draft:
    """Remembered for a while, as all who check a block, and every local drafter, ask for the same one."""
    made_up = mock_block(b"drafter", anchor, anchor_position, [joined], model.vocabulary, n_out)
    drafts, token = [], anchor
    for confidence, other in zip(made_up.confidences, made_up.drafts, strict=True):
        state = model.advance(state, token)
        token = model.choose(state)
        drafts.append(token if confidence >= MISSED else other)
    return Draft(tuple(drafts), made_up.confidences, made_up.margins)


class ChainContext(MockContext):
    """The mock's digests, and the rows themselves."""

    def __init__(self, row_bytes: int) -> None:
        super().__init__(row_bytes)
        self._rows: list[bytes] = []

    @property
    def last_row(self) -> bytes:
        """The row at end - 1."""
        return self._rows[-1]

    def append(self, first_position: int, rows: memoryview, n_rows: int) -> None:
        """See `base.Context`."""
        super().append(first_position, rows, n_rows)
        del self._rows[first_position - self.start :]
        size = len(rows) // n_rows if n_rows else 0
        self._rows += [bytes(rows[at * size : (at + 1) * size]) for at in range(n_rows)]

    def drop_before(self, position: int) -> None:
        """See `base.Context`."""
        dropped = position - self.start
        super().drop_before(position)
        del self._rows[:dropped]

    def clear(self) -> None:
        """See `base.Context`."""
        super().clear()
        self._rows.clear()


class ChainDrafter:
    """Implements `drafters.base.Drafter` over a ChainModel.

    fail_wishes: so many of the next wishes fail.
    """

    def __init__(self, model: ChainModel) -> None:
        self._model = model
        self._facts = model.facts()
        self.fail_wishes = 0

    @property
    def facts(self) -> DrafterFacts:
        """What it is."""
        return self._facts

    def new_context(self, row_form: RowForm, row_dtype: RowDtype) -> Context:
        """An empty context."""
        return ChainContext(self._facts.row_elements[row_form] * row_dtype.itemsize)

    def draft(self, wishes: Sequence[DraftWish]) -> list[Draft | DraftFailure]:
        """A block per wish."""
        return [self._block(wish) for wish in wishes]

    def describe(self) -> dict[str, object]:
        """What STATS shows."""
        return {"kind": "simulated"}

    def _block(self, wish: DraftWish) -> Draft | DraftFailure:
        if not isinstance(wish.context, ChainContext):
            raise ContextMisuseError("a context of another drafter")
        if self.fail_wishes:
            self.fail_wishes -= 1
            return DraftFailure("as the simulation asks")
        first = max(wish.window_start, first_needed(self._model.window, wish.anchor_position))
        digests = wish.context.digests_from(first)
        return self._model.block(
            digests, wish.context.last_row, wish.anchor, wish.anchor_position, wish.n_out
        )


@dataclass
class SimulatedWorker:
    """A worker process after the other on one host, each the real session core.

    max_slots, max_frame_bytes: of a session.  refuse_with: status for every STEP and HELLO while it is set.
    """

    model: ChainModel
    max_slots: int = 8
    max_frame_bytes: int = 1 << 20
    refuse_with: Status | None = None
    lives: int = 0
    drafter: ChainDrafter = field(init=False)
    service: DrafterService = field(init=False)

    def __post_init__(self) -> None:
        self.restart(0)

    def restart(self, now_ns: int) -> None:
        """Another life, which knows no connection."""
        self.lives += 1
        self.drafter = ChainDrafter(self.model)
        self.refuse_with = None
        self.service = DrafterService(
            self.drafter,
            worker_name="simulated",
            boot_nonce=self.lives,
            now_ns=now_ns,
            limits=Limits(max_slots=self.max_slots, max_frame_bytes=self.max_frame_bytes),
            any_policy=True,
        )

    def connected(self, connection: int) -> None:
        """A client came."""
        self.service.connected(connection)

    def disconnected(self, connection: int, reason: str) -> None:
        """A client went."""
        self.service.disconnected(connection, reason)

    def receive(self, connection: int, body: Buffer, received_ns: int, finished_ns: int) -> bytes:
        """The reply to one message, handled between the two times."""
        if self.refuse_with is not None:
            head = peek(body, Kind.REQUEST)
            if head.op in (Op.STEP, Op.HELLO):
                envelope = Envelope(head.op, head.epoch, head.round, self.refuse_with)
                refused = Refused(head.op, self.refuse_with, "header.op", "as the simulation asks")
                return b"".join(encode_reply(envelope, refused, None))
        answer = self.service.receive(connection, body, received_ns=received_ns, now_ns=received_ns)
        return b"".join(self.service.encode(answer, finished_ns=finished_ns))

    # --- ways to disturb it ---

    @property
    def session(self) -> Session | None:
        """The one engine's session, where there is one."""
        return next(iter(self.service.sessions), None)

    def holds(self, slot: int) -> bool:
        """Whether rows of the slot are held in the session."""
        held = self.session.slots.get(slot) if self.session else None
        return held is not None and held.rows > 0

    def fail_drafts(self, wishes: int) -> None:
        """The drafter fails for so many of the next wishes."""
        self.drafter.fail_wishes = wishes

    def forget_slot(self, slot: int) -> None:
        """Answer NEEDS_RESET for it."""
        if self.session is not None:
            self.session.slots.pop(slot, None)

    def newer_generation(self, slot: int) -> None:
        """Answer STALE_GENERATION for it."""
        if self.session is not None and slot in self.session.slots:
            self.session.slots[slot].generation += 1000

    def forget_session(self, connection: int) -> None:
        """Answer NO_SESSION on this connection, as if it were a new one."""
        self.service.disconnected(connection, "the simulation forgets")
        self.service.connected(connection)

    def recover(self) -> None:
        """Undo refuse_with and fail_wishes."""
        self.refuse_with = None
        self.drafter.fail_wishes = 0
