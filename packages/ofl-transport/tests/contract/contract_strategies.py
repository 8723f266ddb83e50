"""Hypothesis strategies for sessions and messages that the contract allows, and for damage to their bytes."""

import struct

from hypothesis import strategies as st
from ofl.contract.dspark_v1 import (
    EntryFlag,
    Hello,
    HelloFlag,
    HelloReply,
    Policy,
    RequestStatus,
    RowDtype,
    RowForm,
    Shape,
    Step,
    StepEntry,
    StepReply,
    StepReplyEntry,
)
from ofl.contract.dspark_v1.rules import first_needed

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
DIGEST = st.binary(min_size=32, max_size=32)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Sessions small enough for thousands of examples, large enough for every branch."""
    return Shape(
        identity=draw(DIGEST),
        markov_identity=draw(DIGEST),
        target_binding=draw(DIGEST),
        vocabulary=draw(st.integers(1, 2**31)),
        row_elements=draw(st.integers(1, 4)),
        window=draw(st.integers(0, 6)),
        max_positions=draw(st.integers(12, 64)),
        max_frame_bytes=draw(st.integers(8192, 1 << 30)),
        block_length=draw(st.integers(1, 9)),
        max_slots=draw(st.integers(1, 20)),
        tap_count=draw(st.integers(1, 64)),
        row_form=draw(st.sampled_from(RowForm)),
        row_dtype=draw(st.sampled_from(RowDtype)),
    )


@st.composite
def hellos(draw: st.DrawFn) -> Hello:
    engine_id = draw(st.binary(min_size=16, max_size=16).filter(any))
    return Hello(engine_id, draw(st.sampled_from(Policy)), draw(shapes()))


@st.composite
def hello_replies(draw: st.DrawFn) -> HelloReply:
    letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    name = draw(st.text(letters, max_size=8))
    return HelloReply(name, draw(U64), HelloFlag(draw(st.integers(0, 3))), draw(shapes()))


@st.composite
def steps(draw: st.DrawFn, shape: Shape) -> Step:
    """Any STEP that a session of this shape allows, with up to four entries of up to three rows."""
    slots = draw(st.lists(st.integers(0, shape.max_slots - 1), min_size=1, max_size=4, unique=True))
    entries = tuple(draw(_entries(shape, slot)) for slot in slots)
    return Step(
        entries,
        tuple(draw(st.binary(min_size=n, max_size=n)) for n in (e.n_rows * shape.row_bytes for e in entries)),
    )


@st.composite
def _entries(draw: st.DrawFn, shape: Shape, slot: int) -> StepEntry:
    reset = draw(st.booleans())
    n_rows = draw(st.integers(1 if reset else 0, 3))
    first = draw(st.integers(0, shape.max_positions - n_rows))
    window_start = first if reset else draw(st.integers(0, first))
    flags, anchor, n_out = EntryFlag.RESET if reset else EntryFlag.NONE, 0, 0
    if draw(st.booleans()) and first + n_rows > window_start:
        flags |= EntryFlag.NEED_DRAFT
        if window_start > first_needed(shape.window, first + n_rows):
            flags |= EntryFlag.PARTIAL_WINDOW
        anchor = draw(st.integers(0, shape.vocabulary - 1))
        n_out = draw(st.integers(1, shape.block_length))
    generation = draw(st.integers(1, 2**32 - 1))
    return StepEntry(slot, flags, generation, first, n_rows, window_start, anchor, n_out)


@st.composite
def step_replies(draw: st.DrawFn, shape: Shape, step: Step) -> StepReply:
    """Any reply that the contract allows to this STEP."""
    entries = tuple(draw(_reply_entries(shape, entry)) for entry in step.entries)
    return StepReply(draw(U32), draw(U32), entries)


@st.composite
def _reply_entries(draw: st.DrawFn, shape: Shape, sent: StepEntry) -> StepReplyEntry:
    status = draw(st.sampled_from(RequestStatus))
    if status is RequestStatus.STALE_GENERATION and sent.generation == 2**32 - 1:
        status = RequestStatus.GAP
    if status is not RequestStatus.OK:
        stale = status is RequestStatus.STALE_GENERATION
        generations = (
            st.integers(sent.generation + 1, 2**32 - 1) if stale else st.integers(0, sent.generation)
        )
        end = draw(st.integers(0, shape.max_positions))
        start = draw(st.integers(0, end))
        return StepReplyEntry(sent.slot, status, draw(generations), start, end, (), (), ())
    end = sent.anchor_position
    start = draw(st.integers(0, min(end, max(sent.window_start, first_needed(shape.window, end)))))
    n = sent.n_out
    drafts = draw(st.lists(st.integers(0, shape.vocabulary - 1), min_size=n, max_size=n))
    confidences = draw(st.lists(st.floats(0, 1, width=32), min_size=n, max_size=n))
    margins = draw(
        st.lists(
            st.floats(min_value=0, width=32, allow_nan=False, allow_infinity=False), min_size=n, max_size=n
        )
    )
    blocks = (tuple(drafts), tuple(confidences), tuple(margins))
    return StepReplyEntry(sent.slot, status, sent.generation, start, end, *blocks)


@st.composite
def damaged(draw: st.DrawFn, message: bytes, body_bytes_at: int) -> bytes:
    """message after one to four of: a flipped bit, a forged word, a cut, bytes put in or taken out.

    Half of the time the header's length is made true again, so that the damage reaches the body's checks.
    """
    data = bytearray(message)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("flip", "word", "cut", "insert", "delete")))
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        if kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "word":
            forged = draw(st.sampled_from((0, 1, 0x7FC00000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)))
            data[at : at + 4] = struct.pack("<I", forged)
        elif kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        else:
            del data[at : at + draw(st.integers(1, 8))]
    if len(data) >= 32 and draw(st.booleans()):
        struct.pack_into("<I", data, body_bytes_at, len(data) - 32)
    return bytes(data)
