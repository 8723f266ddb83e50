"""An engine as the tests need it: true rows at every position, requests by hand, the drafts that are
right."""

import struct
from dataclasses import replace
from typing import TypedDict, Unpack

from ofl.contract.dspark_v1 import (
    EntryFlag,
    Envelope,
    Goodbye,
    Hello,
    Op,
    Ping,
    Policy,
    Refused,
    Reply,
    Request,
    RowDtype,
    RowForm,
    Shape,
    Stats,
    Step,
    StepEntry,
    StepReply,
    decode_reply,
    encode_request,
)
from ofl.contract.dspark_v1.rules import first_needed
from x86_worker.drafters.base import Draft
from x86_worker.mock import MockShape, mock_block, row_digest
from x86_worker.session import Answer, DrafterService, Limits

MOCK = MockShape(
    vocabulary=1000,
    row_elements=4,
    projected_elements=2,
    tap_count=2,
    block_length=3,
    window=8,
    max_positions=256,
)
LIMITS = Limits(max_sessions=3, max_slots=16, max_frame_bytes=1 << 16, context_bytes_max=1 << 20)


class ShapeChanges(TypedDict, total=False):
    """What a test states of `Shape` itself."""

    identity: bytes
    markov_identity: bytes
    target_binding: bytes
    vocabulary: int
    row_elements: int
    window: int
    max_positions: int
    max_frame_bytes: int
    block_length: int
    max_slots: int
    tap_count: int
    row_form: RowForm
    row_dtype: RowDtype


def shape_of(mock: MockShape = MOCK, **changes: Unpack[ShapeChanges]) -> Shape:
    """The shape of an engine that fits the mock."""
    facts = mock.facts()
    shape = Shape(
        identity=facts.identity,
        markov_identity=facts.markov_identity,
        target_binding=facts.target_binding,
        vocabulary=facts.vocabulary,
        row_elements=facts.row_elements[RowForm.RAW],
        window=facts.window,
        max_positions=facts.max_positions,
        max_frame_bytes=LIMITS.max_frame_bytes,
        block_length=facts.block_length,
        max_slots=8,
        tap_count=facts.tap_count,
        row_form=RowForm.RAW,
        row_dtype=RowDtype.BFLOAT16,
    )
    return replace(shape, **changes)


def row(slot: int, position: int, life: int = 0) -> bytes:
    """The true row of a request (its life) in a slot at a position: 8 bytes."""
    return struct.pack("<HHI", slot, life, position)


def rows(slot: int, first: int, count: int, life: int = 0) -> bytes:
    return b"".join(row(slot, position, life) for position in range(first, first + count))


def entry(
    slot: int,
    first: int,
    n_rows: int,
    *,
    generation: int = 1,
    reset: bool = False,
    window_start: int | None = None,
    anchor: int = 7,
    n_out: int = 3,
    mock: MockShape = MOCK,
) -> StepEntry:
    """A legal entry; n_out 0 only appends.  window_start: the whole window unless told otherwise."""
    whole = first_needed(mock.window, first + n_rows)
    if window_start is None:
        window_start = first if reset else min(whole, first)
    flags = EntryFlag.RESET if reset else EntryFlag.NONE
    if n_out:
        flags |= EntryFlag.NEED_DRAFT
        if window_start > whole:
            flags |= EntryFlag.PARTIAL_WINDOW
    return StepEntry(slot, flags, generation, first, n_rows, window_start, anchor if n_out else 0, n_out)


def step(*entries: StepEntry, life: int = 0) -> Step:
    """The entries with their true rows."""
    return Step(entries, tuple(rows(e.slot, e.first_position, e.n_rows, life) for e in entries))


def right_draft(sent: StepEntry, *, life: int = 0, mock: MockShape = MOCK) -> Draft:
    """What the mock must draft for an entry when it holds exactly the true rows."""
    first = max(sent.window_start, first_needed(mock.window, sent.anchor_position))
    digests = [row_digest(p, row(sent.slot, p, life)) for p in range(first, sent.anchor_position)]
    identity = mock.facts().identity
    return mock_block(identity, sent.anchor, sent.anchor_position, digests, mock.vocabulary, sent.n_out)


def refusal_of(reply: Reply) -> Refused:
    """The reply, which must be a refusal."""
    assert isinstance(reply, Refused), reply
    return reply


class EngineTwin:
    """One engine on one connection of a service; checks every reply against the contract."""

    def __init__(
        self, service: DrafterService, connection: int, name: int = 1, shape: Shape | None = None
    ) -> None:
        self.service = service
        self.connection = connection
        self.engine_id = name.to_bytes(16, "little")
        self.shape = shape or shape_of()
        self.epoch = 0
        self.rounds = 0
        self.now_ns = 0
        self._answer: Answer | None = None

    @property
    def answer(self) -> Answer:
        """To what was sent last."""
        assert self._answer is not None, "nothing was sent"
        return self._answer

    def ask(self, request: Request, *, epoch: int | None = None) -> Reply:
        """Send a request through both codecs; the reply as the engine decodes it."""
        op = {Hello: Op.HELLO, Step: Op.STEP, Ping: Op.PING, Stats: Op.STATS, Goodbye: Op.GOODBYE}[
            type(request)
        ]
        self.rounds += 1
        envelope = Envelope(op, self.epoch if epoch is None else epoch, self.rounds)
        wire = b"".join(encode_request(envelope, request, self.shape))
        return decode_reply(self.send(wire), envelope, request, self.shape)

    def send(self, wire: bytes) -> bytes:
        """Raw bytes to the service; the bytes of its reply."""
        self._answer = self.service.receive(
            self.connection, wire, received_ns=self.now_ns, now_ns=self.now_ns + 3_000
        )
        return b"".join(self.service.encode(self.answer, finished_ns=self.now_ns + 10_000))

    def hello(
        self, policy: Policy = Policy.SHADOW, *, epoch: int | None = None, **changes: Unpack[ShapeChanges]
    ) -> Reply:
        """Open a session, with the next epoch unless told otherwise."""
        self.epoch = self.epoch + 1 if epoch is None else epoch
        self.shape = replace(self.shape, **changes)
        return self.ask(Hello(self.engine_id, policy, self.shape))

    def step(self, *entries: StepEntry, life: int = 0) -> StepReply:
        reply = self.ask(step(*entries, life=life))
        assert isinstance(reply, StepReply), reply
        return reply
