"""What must hold in a message beyond its layout; both ends apply these, before sending and after receiving."""

import math

from ofl.contract.dspark_v1.layout import (
    BLOCK_LENGTH_MAX,
    ENTRY_FLAGS_ALL,
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    HELLO_FLAGS_ALL,
    SLOTS_MAX,
    TAPS_MAX,
    EntryFlag,
    HelloFlag,
    RequestStatus,
)
from ofl.contract.dspark_v1.messages import Hello, Shape, Step, StepEntry, StepReply, StepReplyEntry
from ofl.contract.identity import DIGEST_BYTES, UNSTATED
from ofl.contract.records import ContractError

COMPARED = (
    "vocabulary", "row_elements", "row_form", "row_dtype", "tap_count", "block_length", "window", "target_binding",
    "markov_identity", "identity",
)
"""Fields of the shape that must be equal on both ends, cheap facts first: the first that differs is the one named."""
NEGOTIATED = ("max_positions", "max_frame_bytes", "max_slots")
"""Fields in which the engine asks and the worker must offer at least as much."""


def check_shape(shape: Shape, where: str) -> None:
    """Raises ContractError naming the field that no session could have."""
    for name in ("identity", "markov_identity", "target_binding"):
        if len(getattr(shape, name)) != DIGEST_BYTES:
            raise ContractError(f"{where}.{name}", f"{len(getattr(shape, name))} bytes where {DIGEST_BYTES} are needed")
    bounds = {
        "vocabulary": (1, 1 << 31), "row_elements": (1, 1 << 24), "window": (0, 1 << 31),
        "max_positions": (1, 1 << 31), "max_frame_bytes": (FRAME_BYTES_MIN, FRAME_BYTES_MAX),
        "block_length": (1, BLOCK_LENGTH_MAX), "max_slots": (1, SLOTS_MAX), "tap_count": (1, TAPS_MAX),
    }
    for name, (low, high) in bounds.items():
        value = getattr(shape, name)
        if not low <= value <= high:
            raise ContractError(f"{where}.{name}", f"{value} where {low} .. {high} is allowed")


def check_hello(hello: Hello) -> None:
    """Raises ContractError naming the field that a HELLO may not carry."""
    if len(hello.engine_id) != 16:
        raise ContractError("hello.engine_id", f"{len(hello.engine_id)} bytes where 16 are needed")
    if not any(hello.engine_id):
        raise ContractError("hello.engine_id", "all zeros")
    check_shape(hello.shape, "hello")


def first_mismatch(engine: Shape, worker: Shape) -> tuple[str, str] | None:
    """The first field in which the two shapes cannot serve together, with both values; None where they can."""
    for name in COMPARED:
        ours, theirs = getattr(engine, name), getattr(worker, name)
        if name == "target_binding" and UNSTATED in (ours, theirs):
            continue
        if ours != theirs:
            return f"hello.{name}", f"the engine has {_shown(ours)}, the worker has {_shown(theirs)}"
    for name in NEGOTIATED:
        ours, theirs = getattr(engine, name), getattr(worker, name)
        if ours > theirs:
            return f"hello.{name}", f"the engine needs {ours}, the worker allows {theirs}"
    return None


def first_needed(window: int, anchor_position: int) -> int:
    """Lowest position of a whole context before anchor_position.  window: rows, 0 for all."""
    return max(0, anchor_position - window) if window else 0


def checked_entry_flags(value: int, index: int) -> EntryFlag:
    """The flags of entry index; raises ContractError on an unknown bit."""
    if value & ~ENTRY_FLAGS_ALL:
        raise ContractError(f"step_entry[{index}].flags", f"0x{value:x} has bits outside 0x{ENTRY_FLAGS_ALL:x}")
    return EntryFlag(value)


def checked_hello_flags(value: int) -> HelloFlag:
    """The flags of a HELLO reply; raises ContractError on an unknown bit."""
    if value & ~HELLO_FLAGS_ALL:
        raise ContractError("hello_reply.flags", f"0x{value:x} has bits outside 0x{HELLO_FLAGS_ALL:x}")
    return HelloFlag(value)


def check_step(step: Step, shape: Shape) -> None:
    """Raises ContractError naming the entry and field that break a rule of the session."""
    if not 1 <= len(step.entries) <= shape.max_slots:
        raise ContractError("step.entry_count", f"{len(step.entries)} where 1 .. {shape.max_slots} is allowed")
    if len(step.rows) != len(step.entries):
        raise ContractError("step.row_count", f"{len(step.rows)} row buffers for {len(step.entries)} entries")
    seen: set[int] = set()
    for index, (entry, rows) in enumerate(zip(step.entries, step.rows, strict=True)):
        where = f"step_entry[{index}]"
        if entry.slot in seen:
            raise ContractError(f"{where}.slot", f"slot {entry.slot} appears twice")
        seen.add(entry.slot)
        _check_entry(entry, shape, where)
        if len(rows) != entry.n_rows * shape.row_bytes:
            raise ContractError(f"{where}.n_rows", f"{entry.n_rows} rows of {shape.row_bytes} bytes, {len(rows)} given")


def _check_entry(entry: StepEntry, shape: Shape, where: str) -> None:
    if not 0 <= entry.slot < shape.max_slots:
        raise ContractError(f"{where}.slot", f"{entry.slot} where 0 .. {shape.max_slots - 1} is allowed")
    if entry.generation < 1:
        raise ContractError(f"{where}.generation", "0 where generations count from 1")
    if entry.anchor_position > shape.max_positions:
        raise ContractError(
            f"{where}.first_position", f"{entry.first_position} + {entry.n_rows} rows passes {shape.max_positions}"
        )
    if entry.window_start > entry.first_position:
        raise ContractError(f"{where}.window_start", f"{entry.window_start} lies behind first_position {entry.first_position}")
    if entry.flags & EntryFlag.RESET:
        if entry.window_start != entry.first_position:
            raise ContractError(f"{where}.window_start", f"{entry.window_start} with RESET at {entry.first_position}")
        if entry.n_rows == 0:
            raise ContractError(f"{where}.n_rows", "0 with RESET")
    if entry.needs_draft:
        _check_draft_wish(entry, shape, where)
    elif entry.n_out or entry.anchor or entry.flags & EntryFlag.PARTIAL_WINDOW:
        raise ContractError(f"{where}.n_out", "n_out, anchor and PARTIAL_WINDOW must be zero without NEED_DRAFT")


def _check_draft_wish(entry: StepEntry, shape: Shape, where: str) -> None:
    if not 1 <= entry.n_out <= shape.block_length:
        raise ContractError(f"{where}.n_out", f"{entry.n_out} where 1 .. {shape.block_length} is allowed")
    if not 0 <= entry.anchor < shape.vocabulary:
        raise ContractError(f"{where}.anchor", f"{entry.anchor} where 0 .. {shape.vocabulary - 1} is allowed")
    if entry.anchor_position == entry.window_start:
        raise ContractError(f"{where}.window_start", f"{entry.window_start} leaves no context before the anchor")
    whole = entry.window_start <= first_needed(shape.window, entry.anchor_position)
    if whole == bool(entry.flags & EntryFlag.PARTIAL_WINDOW):
        state = "whole" if whole else "partial"
        raise ContractError(f"{where}.flags", f"PARTIAL_WINDOW is {int(not whole) ^ 1} but the window is {state}")


def check_step_reply(reply: StepReply, request: Step, shape: Shape) -> None:
    """Raises ContractError naming the entry and field of a reply that this request cannot have."""
    if len(reply.entries) != len(request.entries):
        raise ContractError("step_reply.entry_count", f"{len(reply.entries)} where {len(request.entries)} were sent")
    for index, (got, sent) in enumerate(zip(reply.entries, request.entries, strict=True)):
        _check_reply_entry(got, sent, shape, f"step_reply_entry[{index}]")


def _check_reply_entry(got: StepReplyEntry, sent: StepEntry, shape: Shape, where: str) -> None:
    if got.slot != sent.slot:
        raise ContractError(f"{where}.slot", f"{got.slot} where {sent.slot} was sent")
    if not len(got.drafts) == len(got.confidences) == len(got.margins):
        raise ContractError(f"{where}.n_out", "drafts, confidences and margins differ in length")
    if got.status is not RequestStatus.OK:
        if got.n_out:
            raise ContractError(f"{where}.n_out", f"{got.n_out} with status {got.status.name}")
        if got.status is RequestStatus.STALE_GENERATION and got.generation <= sent.generation:
            raise ContractError(f"{where}.generation", f"{got.generation} is not newer than {sent.generation}")
        return
    if got.generation != sent.generation:
        raise ContractError(f"{where}.generation", f"{got.generation} where {sent.generation} was sent")
    if got.n_out != sent.n_out:
        raise ContractError(f"{where}.n_out", f"{got.n_out} where {sent.n_out} was asked")
    if got.window_end != sent.anchor_position:
        raise ContractError(f"{where}.window_end", f"{got.window_end} where {sent.anchor_position} follows")
    if got.window_start > max(sent.window_start, first_needed(shape.window, got.window_end)):
        raise ContractError(f"{where}.window_start", f"{got.window_start} where {sent.window_start} was sent")
    for draft in got.drafts:
        if not 0 <= draft < shape.vocabulary:
            raise ContractError(f"{where}.drafts", f"id {draft} where 0 .. {shape.vocabulary - 1} is allowed")
    for value in got.confidences:
        if not 0.0 <= value <= 1.0:
            raise ContractError(f"{where}.confidences", f"{value} where 0 .. 1 is allowed")
    for value in got.margins:
        if not (math.isfinite(value) and value >= 0.0):
            raise ContractError(f"{where}.margins", f"{value} where a finite value of at least 0 is needed")


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
