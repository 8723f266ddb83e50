"""STEP and its reply: the two messages that travel once per round, so this file avoids dictionaries and
copies.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache

from ofl.contract.dspark_v1 import rules
from ofl.contract.dspark_v1.framing import check_frame
from ofl.contract.dspark_v1.layout import (
    STEP,
    STEP_ENTRY,
    STEP_REPLY,
    STEP_REPLY_ENTRY,
    RequestStatus,
    block_bytes,
)
from ofl.contract.dspark_v1.messages import Shape, Step, StepEntry, StepReply, StepReplyEntry
from ofl.contract.fields import code, ends
from ofl.contract.records import Buffer, ContractError

ROW_PARTS_MAX = 60
"""Transports take at least 64 parts; two of them are the header and the entries."""


def pack_step(step: Step, shape: Shape) -> list[Buffer]:
    """Parts of a STEP's body, at most 61; up to 60 row buffers are not copied.  Raises ContractError."""
    rules.check_step(step, shape)
    head = [STEP.pack_row(len(step.entries), sum(entry.n_rows for entry in step.entries))]
    head += [
        STEP_ENTRY.pack_row(
            entry.slot,
            entry.flags,
            entry.generation,
            entry.first_position,
            entry.n_rows,
            entry.window_start,
            entry.anchor,
            entry.n_out,
        )
        for entry in step.entries
    ]
    return [b"".join(head), *_row_parts(step.rows)]


def _row_parts(rows: Sequence[Buffer]) -> Sequence[Buffer]:
    """Row buffers that hold something, joined where they are more than a transport takes as parts."""
    filled = [part for part in rows if len(part)]
    return filled if len(filled) <= ROW_PARTS_MAX else [b"".join(filled)]


def unpack_step(body: memoryview, shape: Shape) -> Step:
    """A STEP whose rows are views into body.  Raises ContractError."""
    check_frame(len(body), shape.max_frame_bytes)
    count, row_count = STEP.row(body)
    rules.check_entry_count(count, shape)
    rows_at = STEP.size + count * STEP_ENTRY.size
    row_bytes = shape.row_bytes
    ends(body, rows_at + row_count * row_bytes, "step.row_count")
    entries, rows, offset = [], [], rows_at
    for index in range(count):
        slot, flags, *rest = STEP_ENTRY.row(body, STEP.size + index * STEP_ENTRY.size)
        entry = StepEntry(slot, rules.checked_entry_flags(flags, index), *rest)
        end = offset + entry.n_rows * row_bytes
        entries.append(entry)
        rows.append(body[offset:end])
        offset = end
    if offset != len(body):
        held = sum(entry.n_rows for entry in entries)
        raise ContractError("step.row_count", f"{row_count} where the entries hold {held} rows")
    step = Step(tuple(entries), tuple(rows))
    rules.check_step(step, shape)
    return step


def pack_step_reply(reply: StepReply, request: Step, shape: Shape) -> bytes:
    """The body of a STEP's reply.  Raises ContractError."""
    rules.check_step_reply(reply, request, shape)
    arrays = _arrays(shape.block_length)
    parts = [STEP_REPLY.pack_row(len(reply.entries), reply.queue_us, reply.draft_us)]
    for got in reply.entries:
        parts.append(
            STEP_REPLY_ENTRY.pack_row(
                got.slot, got.status, got.generation, got.window_start, got.window_end, got.n_out
            )
        )
        tail = (0,) * (shape.block_length - got.n_out)
        parts.append(arrays.pack(*got.drafts, *tail, *got.confidences, *tail, *got.margins, *tail))
    return b"".join(parts)


def unpack_step_reply(body: memoryview, request: Step, shape: Shape) -> StepReply:
    """The reply to request.  Raises ContractError."""
    check_frame(len(body), shape.max_frame_bytes)
    count, queue_us, draft_us = STEP_REPLY.row(body)
    rules.check_reply_count(count, request)
    length = shape.block_length
    step_bytes = block_bytes(length)
    ends(body, STEP_REPLY.size + count * step_bytes, "step_reply.entry_count")
    entries = [
        _unpack_reply_entry(body, STEP_REPLY.size + index * step_bytes, index, length)
        for index in range(count)
    ]
    reply = StepReply(queue_us, draft_us, tuple(entries))
    rules.check_step_reply(reply, request, shape)
    return reply


def _unpack_reply_entry(body: memoryview, offset: int, index: int, length: int) -> StepReplyEntry:
    slot, status, generation, window_start, window_end, n_out = STEP_REPLY_ENTRY.row(body, offset)
    offset += STEP_REPLY_ENTRY.size
    if n_out > length:
        raise ContractError(
            f"step_reply_entry[{index}].n_out", f"{n_out} where the block has {length} positions"
        )
    if n_out < length:
        _check_tails(body, offset, index, n_out, length)
    values = _arrays(length).unpack_from(body, offset)
    return StepReplyEntry(
        slot,
        code(RequestStatus, status, f"step_reply_entry[{index}].status"),
        generation,
        window_start,
        window_end,
        values[:n_out],
        values[length : length + n_out],
        values[2 * length : 2 * length + n_out],
    )


def _check_tails(body: memoryview, offset: int, index: int, n_out: int, length: int) -> None:
    """What lies behind n_out must be zero bytes, not only zero values: a message has one encoding."""
    for array, name in enumerate(("drafts", "confidences", "margins")):
        start = offset + 4 * (array * length + n_out)
        end = offset + 4 * (array + 1) * length
        if any(body[start:end]):
            raise ContractError(
                f"step_reply_entry[{index}].{name}", f"a value behind n_out {n_out} is not zero"
            )


@lru_cache(maxsize=64)
def _arrays(block_length: int) -> struct.Struct:
    return struct.Struct(f"<{block_length}i{2 * block_length}f")
