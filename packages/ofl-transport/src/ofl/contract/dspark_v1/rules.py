"""What must hold in a message beyond its layout; both ends apply these, before sending and after
receiving."""

from ofl.contract.dspark_v1.layout import (
    BLOCK_LENGTH_MAX,
    ENTRY_FLAGS_ALL,
    FLOAT32_MAX,
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    GENERATION_MAX,
    HEADER,
    HELLO_FLAGS_ALL,
    SLOTS_MAX,
    STATS_BYTES_MAX,
    STEP,
    STEP_ENTRY,
    STEP_REPLY,
    TAPS_MAX,
    EntryFlag,
    HelloFlag,
    RequestStatus,
    block_bytes,
)
from ofl.contract.dspark_v1.messages import Hello, Shape, Step, StepEntry, StepReply, StepReplyEntry
from ofl.contract.identity import DIGEST_BYTES, UNSTATED
from ofl.contract.records import ContractError

COMPARED = (
    "vocabulary",
    "row_form",
    "row_dtype",
    "row_elements",
    "tap_count",
    "block_length",
    "window",
    "target_binding",
    "markov_identity",
    "identity",
)
"""Fields of the shape that must be equal on both ends, those that explain others first: the first that
differs is the one named."""
NEGOTIATED = ("max_positions", "max_frame_bytes", "max_slots")
"""Fields in which the engine asks and the worker must offer at least as much."""

_BOUNDS = {
    "vocabulary": (1, 1 << 31),
    "row_elements": (1, 1 << 24),
    "window": (0, 1 << 31),
    "max_positions": (1, 1 << 31),
    "max_frame_bytes": (FRAME_BYTES_MIN, FRAME_BYTES_MAX),
    "block_length": (1, BLOCK_LENGTH_MAX),
    "max_slots": (1, SLOTS_MAX),
    "tap_count": (1, TAPS_MAX),
}
_RESET = EntryFlag.RESET.value
_PARTIAL_WINDOW = EntryFlag.PARTIAL_WINDOW.value
_ENTRY_FLAGS = tuple(EntryFlag(value) for value in range(ENTRY_FLAGS_ALL + 1))
_HELLO_FLAGS = tuple(HelloFlag(value) for value in range(HELLO_FLAGS_ALL + 1))


# --- HELLO and the rare messages -------------------------------------------------------------------------


def check_shape(shape: Shape, where: str) -> None:
    """Raises ContractError naming the field that no session could have."""
    for name in ("identity", "markov_identity", "target_binding"):
        size = len(getattr(shape, name))
        if size != DIGEST_BYTES:
            raise ContractError(f"{where}.{name}", f"{size} bytes where {DIGEST_BYTES} are needed")
    for name, (low, high) in _BOUNDS.items():
        value = getattr(shape, name)
        if not low <= value <= high:
            raise ContractError(f"{where}.{name}", f"{value} where {low} .. {high} is allowed")
    needed = least_frame_bytes(shape)
    if shape.max_frame_bytes < needed:
        detail = f"{shape.max_frame_bytes} where one row and a reply to {shape.max_slots} slots need {needed}"
        raise ContractError(f"{where}.max_frame_bytes", detail)


def least_frame_bytes(shape: Shape) -> int:
    """The smallest max_frame_bytes with which a session of this shape can work at all."""
    request = HEADER.size + STEP.size + STEP_ENTRY.size + shape.row_bytes
    reply = HEADER.size + STEP_REPLY.size + shape.max_slots * block_bytes(shape.block_length)
    return max(request, reply)


def check_hello(hello: Hello) -> None:
    """Raises ContractError naming the field that a HELLO may not carry."""
    check_engine_id(hello.engine_id, "hello")
    check_shape(hello.shape, "hello")


def check_engine_id(engine_id: bytes, where: str) -> None:
    """Raises ContractError unless engine_id is 16 bytes that are not all zero."""
    if len(engine_id) != 16:
        raise ContractError(f"{where}.engine_id", f"{len(engine_id)} bytes where 16 are needed")
    if not any(engine_id):
        raise ContractError(f"{where}.engine_id", "all zeros")


def first_mismatch(engine: Shape, worker: Shape) -> tuple[str, str] | None:
    """The first field in which the two cannot serve together, with both values; None where they can."""
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


def checked_hello_flags(value: int) -> HelloFlag:
    """The flags of a HELLO reply; raises ContractError on an unknown bit."""
    if not 0 <= value <= HELLO_FLAGS_ALL:
        raise ContractError("hello_reply.flags", f"0x{value:x} has bits outside 0x{HELLO_FLAGS_ALL:x}")
    return _HELLO_FLAGS[value]


def check_stats_bytes(size: int) -> None:
    """Raises ContractError when a STATS text is too long."""
    if size > STATS_BYTES_MAX:
        raise ContractError("stats_reply.text_bytes", f"{size} where {STATS_BYTES_MAX} is the limit")


# --- STEP ------------------------------------------------------------------------------------------------


def first_needed(window: int, anchor_position: int) -> int:
    """Lowest position of a whole context before anchor_position.  window: rows, 0 for all."""
    return max(0, anchor_position - window) if window else 0


def checked_entry_flags(value: int, index: int) -> EntryFlag:
    """The flags of entry index; raises ContractError on an unknown bit."""
    if not 0 <= value <= ENTRY_FLAGS_ALL:
        raise ContractError(
            f"step_entry[{index}].flags", f"0x{value:x} has bits outside 0x{ENTRY_FLAGS_ALL:x}"
        )
    return _ENTRY_FLAGS[value]


def check_entry_count(count: int, shape: Shape) -> None:
    """Raises ContractError unless a STEP may have so many entries."""
    if not 1 <= count <= shape.max_slots:
        raise ContractError("step.entry_count", f"{count} where 1 .. {shape.max_slots} is allowed")


def check_step(step: Step, shape: Shape) -> None:
    """Raises ContractError naming the entry and field that break a rule of the session."""
    check_entry_count(len(step.entries), shape)
    if len(step.rows) != len(step.entries):
        raise ContractError("step.row_count", f"{len(step.rows)} row buffers for {len(step.entries)} entries")
    row_bytes = shape.row_bytes
    seen: set[int] = set()
    for index, (entry, rows) in enumerate(zip(step.entries, step.rows, strict=True)):
        if entry.slot in seen:
            raise _wrong_entry(index, "slot", f"slot {entry.slot} appears twice")
        seen.add(entry.slot)
        _check_entry(entry, shape, index)
        if len(rows) != entry.n_rows * row_bytes:
            raise _wrong_entry(
                index, "n_rows", f"{entry.n_rows} rows of {row_bytes} bytes, {len(rows)} given"
            )


def _check_entry(entry: StepEntry, shape: Shape, index: int) -> None:
    flags, first = int(entry.flags), entry.first_position
    if not 0 <= flags <= ENTRY_FLAGS_ALL:
        checked_entry_flags(flags, index)
    if not 0 <= entry.slot < shape.max_slots:
        raise _wrong_entry(index, "slot", f"{entry.slot} where 0 .. {shape.max_slots - 1} is allowed")
    if not 1 <= entry.generation <= GENERATION_MAX:
        raise _wrong_entry(index, "generation", f"{entry.generation} where generations count from 1")
    if entry.n_rows < 0:
        raise _wrong_entry(index, "n_rows", f"{entry.n_rows} rows")
    if entry.anchor_position > shape.max_positions:
        detail = f"{first} + {entry.n_rows} rows passes {shape.max_positions} positions"
        raise _wrong_entry(index, "first_position", detail)
    if not 0 <= entry.window_start <= first:
        raise _wrong_entry(index, "window_start", f"{entry.window_start} where first_position is {first}")
    if flags & _RESET:
        if entry.window_start != first:
            raise _wrong_entry(index, "window_start", f"{entry.window_start} with RESET at {first}")
        if entry.n_rows == 0:
            raise _wrong_entry(index, "n_rows", "0 with RESET")
    if entry.needs_draft:
        _check_draft_wish(entry, shape, index)
    elif entry.n_out:
        raise _wrong_entry(index, "n_out", f"{entry.n_out} without NEED_DRAFT")
    elif entry.anchor:
        raise _wrong_entry(index, "anchor", f"{entry.anchor} without NEED_DRAFT")
    elif flags & _PARTIAL_WINDOW:
        raise _wrong_entry(index, "flags", "PARTIAL_WINDOW without NEED_DRAFT")


def _check_draft_wish(entry: StepEntry, shape: Shape, index: int) -> None:
    if not 1 <= entry.n_out <= shape.block_length:
        raise _wrong_entry(index, "n_out", f"{entry.n_out} where 1 .. {shape.block_length} is allowed")
    if not 0 <= entry.anchor < shape.vocabulary:
        raise _wrong_entry(index, "anchor", f"{entry.anchor} where 0 .. {shape.vocabulary - 1} is allowed")
    if entry.anchor_position == entry.window_start:
        raise _wrong_entry(index, "window_start", f"{entry.window_start} leaves no context before the anchor")
    needed = first_needed(shape.window, entry.anchor_position)
    partial = entry.window_start > needed
    if partial != bool(int(entry.flags) & _PARTIAL_WINDOW):
        word = "missing" if partial else "set"
        detail = f"PARTIAL_WINDOW is {word} where window_start is {entry.window_start} and {needed} is whole"
        raise _wrong_entry(index, "flags", detail)


def _wrong_entry(index: int, field: str, detail: str) -> ContractError:
    return ContractError(f"step_entry[{index}].{field}", detail)


# --- the reply to a STEP ---------------------------------------------------------------------------------


def check_reply_count(count: int, request: Step) -> None:
    """Raises ContractError unless the reply has an entry for each of the request's."""
    if count != len(request.entries):
        raise ContractError("step_reply.entry_count", f"{count} where {len(request.entries)} were sent")


def check_step_reply(reply: StepReply, request: Step, shape: Shape) -> None:
    """Raises ContractError naming the entry and field of a reply that this request cannot have."""
    check_reply_count(len(reply.entries), request)
    for index, (got, sent) in enumerate(zip(reply.entries, request.entries, strict=True)):
        check_reply_entry(got, sent, shape, index)


def check_reply_entry(got: StepReplyEntry, sent: StepEntry, shape: Shape, index: int) -> None:
    """Raises ContractError naming the field that the reply to this entry cannot have."""
    if got.slot != sent.slot:
        raise _wrong_reply(index, "slot", f"{got.slot} where {sent.slot} was sent")
    if not got.window_start <= got.window_end <= shape.max_positions:
        detail = f"{got.window_start} .. {got.window_end} among {shape.max_positions} positions"
        raise _wrong_reply(index, "window_end", detail)
    if not len(got.drafts) == len(got.confidences) == len(got.margins):
        raise _wrong_reply(index, "n_out", "drafts, confidences and margins differ in length")
    if got.status is RequestStatus.OK:
        _check_good_entry(got, sent, shape, index)
    else:
        _check_failed_entry(got, sent, index)


def _check_failed_entry(got: StepReplyEntry, sent: StepEntry, index: int) -> None:
    if got.n_out:
        raise _wrong_reply(index, "n_out", f"{got.n_out} with status {got.status.name}")
    newer = got.generation > sent.generation
    if newer != (got.status is RequestStatus.STALE_GENERATION):
        detail = f"{got.generation} with status {got.status.name} where {sent.generation} was sent"
        raise _wrong_reply(index, "generation", detail)


def _check_good_entry(got: StepReplyEntry, sent: StepEntry, shape: Shape, index: int) -> None:
    if got.generation != sent.generation:
        raise _wrong_reply(index, "generation", f"{got.generation} where {sent.generation} was sent")
    if len(got.drafts) != sent.n_out:
        raise _wrong_reply(index, "n_out", f"{got.n_out} where {sent.n_out} was asked")
    if got.window_end != sent.anchor_position:
        raise _wrong_reply(index, "window_end", f"{got.window_end} where {sent.anchor_position} follows")
    if got.window_start > max(sent.window_start, first_needed(shape.window, got.window_end)):
        raise _wrong_reply(index, "window_start", f"{got.window_start} where {sent.window_start} was sent")
    for draft in got.drafts:
        if not 0 <= draft < shape.vocabulary:
            detail = f"id {draft} where 0 .. {shape.vocabulary - 1} is allowed"
            raise _wrong_reply(index, "drafts", detail)
    for value in got.confidences:
        # NaN fails every comparison, so it is refused here and below.
        if not 0.0 <= value <= 1.0:
            raise _wrong_reply(index, "confidences", f"{value} where 0 .. 1 is allowed")
    for value in got.margins:
        if not 0.0 <= value <= FLOAT32_MAX:
            raise _wrong_reply(index, "margins", f"{value} where a finite float32 of at least 0 is needed")


def _wrong_reply(index: int, field: str, detail: str) -> ContractError:
    return ContractError(f"step_reply_entry[{index}].{field}", detail)


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return "unstated" if value == UNSTATED else value.hex()
    return getattr(value, "name", None) or str(value)
