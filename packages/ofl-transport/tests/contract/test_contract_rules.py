"""What each end refuses before it sends, with the field that it names."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from contract_samples import BY_NAME, ENGINE_ID, HELLO_REPLY, SHAPE, STEP, STEP_REPLY
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
    RequestStatus,
    RowForm,
    Stats,
    StatsReply,
    Status,
    Step,
    StepEntry,
    StepReply,
    StepReplyEntry,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    layout,
)
from ofl.contract.dspark_v1.rules import COMPARED, NEGOTIATED, check_shape, first_mismatch, first_needed
from ofl.contract.identity import UNSTATED
from ofl.contract.records import ContractError

STEP_ENVELOPE = Envelope(Op.STEP, 3, 7)


def refused_field(call: Callable[..., object], *args: object) -> str:
    with pytest.raises(ContractError) as caught:
        call(*args)
    return caught.value.field


def step_field(**changes: Any) -> str:
    """The field that encoding names when the first entry of the sample STEP is changed so."""
    entries = (replace(STEP.entries[0], **changes), *STEP.entries[1:])
    return refused_field(encode_request, STEP_ENVELOPE, Step(entries, STEP.rows), SHAPE)


def reply_field(**changes: Any) -> str:
    entries = (replace(STEP_REPLY.entries[0], **changes), *STEP_REPLY.entries[1:])
    return refused_field(encode_reply, STEP_ENVELOPE, StepReply(1, 2, entries), STEP, SHAPE)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"slot": 5}, "slot"),
        ({"slot": 4}, "slot"),
        ({"generation": 0}, "generation"),
        ({"generation": 2**32}, "generation"),
        ({"first_position": 62}, "first_position"),
        ({"first_position": 11}, "window_start"),
        ({"window_start": 11}, "window_start"),
        ({"n_rows": -1}, "n_rows"),
        ({"n_rows": 0}, "n_rows"),
        ({"n_rows": 2}, "n_rows"),
        ({"anchor": 1000}, "anchor"),
        ({"anchor": -1}, "anchor"),
        ({"n_out": 0}, "n_out"),
        ({"n_out": 3}, "n_out"),
        ({"flags": EntryFlag.RESET | EntryFlag.NEED_DRAFT}, "flags"),
        ({"flags": EntryFlag.NONE}, "n_out"),
        ({"flags": EntryFlag.NONE, "n_out": 0}, "anchor"),
        ({"flags": EntryFlag.PARTIAL_WINDOW, "n_out": 0, "anchor": 0}, "flags"),
    ],
)
def test_a_step_that_breaks_a_rule_never_leaves(changes: dict[str, Any], field: str) -> None:
    where = 1 if changes == {"slot": 4} else 0
    assert step_field(**changes) == f"step_entry[{where}].{field}"


def test_the_partial_flag_is_exactly_a_window_that_is_not_whole() -> None:
    whole = StepEntry(0, EntryFlag.NEED_DRAFT, 1, 20, 0, 16, 5, 1)
    for window_start in range(10, 20):
        partial = window_start > 16  # the window is 4 rows and the anchor stands at 20
        for said in (False, True):
            flags = EntryFlag.NEED_DRAFT | (EntryFlag.PARTIAL_WINDOW if said else EntryFlag.NONE)
            step = Step((replace(whole, window_start=window_start, flags=flags),), (b"",))
            if said == partial:
                encode_request(STEP_ENVELOPE, step, SHAPE)
            else:
                assert refused_field(encode_request, STEP_ENVELOPE, step, SHAPE) == "step_entry[0].flags"


def test_a_draft_needs_at_least_one_row_of_context() -> None:
    step = Step((StepEntry(0, EntryFlag.NEED_DRAFT, 1, 0, 0, 0, 5, 1),), (b"",))
    assert refused_field(encode_request, STEP_ENVELOPE, step, SHAPE) == "step_entry[0].window_start"


def test_full_attention_is_whole_only_from_position_zero() -> None:
    assert first_needed(0, 1000) == 0
    assert first_needed(4, 1000) == 996
    assert first_needed(4, 3) == 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"slot": 1}, "slot"),
        ({"generation": 8}, "generation"),
        ({"generation": 6}, "generation"),
        ({"window_start": 11}, "window_start"),
        ({"window_end": 12}, "window_end"),
        ({"window_end": 65}, "window_end"),
        ({"drafts": (17,)}, "n_out"),
        ({"drafts": (17,), "confidences": (0.5,), "margins": (1.0,)}, "n_out"),
        ({"drafts": (17, 1000)}, "drafts"),
        ({"drafts": (-1, 0)}, "drafts"),
        ({"confidences": (0.5, float("nan"))}, "confidences"),
        ({"confidences": (1.0000001, 0.5)}, "confidences"),
        ({"confidences": (-0.1, 0.5)}, "confidences"),
        ({"margins": (float("nan"), 0.0)}, "margins"),
        ({"margins": (float("inf"), 0.0)}, "margins"),
        ({"margins": (1e300, 0.0)}, "margins"),
        ({"margins": (-1.0, 0.0)}, "margins"),
        ({"status": RequestStatus.DRAFTER}, "n_out"),
    ],
)
def test_a_reply_that_breaks_a_rule_never_leaves(changes: dict[str, Any], field: str) -> None:
    assert reply_field(**changes) == f"step_reply_entry[0].{field}"


@pytest.mark.parametrize("status", [s for s in RequestStatus if s is not RequestStatus.OK])
def test_only_a_stale_generation_is_newer_than_what_was_sent(status: RequestStatus) -> None:
    failed: dict[str, Any] = {"status": status, "drafts": (), "confidences": (), "margins": ()}
    for generation in (6, 7, 8):
        allowed = (generation > 7) == (status is RequestStatus.STALE_GENERATION)
        entries = (replace(STEP_REPLY.entries[0], generation=generation, **failed), *STEP_REPLY.entries[1:])
        if allowed:
            encode_reply(STEP_ENVELOPE, StepReply(1, 2, entries), STEP, SHAPE)
        else:
            assert reply_field(generation=generation, **failed) == "step_reply_entry[0].generation"


def test_a_reply_may_hold_more_of_the_window_but_not_less() -> None:
    sent = Step((StepEntry(0, EntryFlag.NEED_DRAFT, 1, 20, 0, 10, 5, 1),), (b"",))
    for held_from in range(8, 20):
        got = StepReply(0, 0, (StepReplyEntry(0, RequestStatus.OK, 1, held_from, 20, (1,), (0.5,), (1.0,)),))
        if held_from <= 16:  # 10 was sent, but only 4 rows before 20 are attended to
            encode_reply(STEP_ENVELOPE, got, sent, SHAPE)
        else:
            field = refused_field(encode_reply, STEP_ENVELOPE, got, sent, SHAPE)
            assert field == "step_reply_entry[0].window_start"


def test_frames_over_the_sessions_limit_never_leave() -> None:
    small = replace(SHAPE, max_frame_bytes=4096, row_elements=600)
    entry = StepEntry(0, EntryFlag.RESET, 1, 0, 4, 0, 0, 0)
    step = Step((entry,), (bytes(4 * small.row_bytes),))
    assert refused_field(encode_request, STEP_ENVELOPE, step, small) == "header.body_bytes"
    wire = b"".join(encode_request(STEP_ENVELOPE, step, replace(small, max_frame_bytes=8192)))
    assert refused_field(decode_request, wire, small) == "header.body_bytes"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"identity": bytes(31)}, "identity"),
        ({"vocabulary": 0}, "vocabulary"),
        ({"vocabulary": 2**31 + 1}, "vocabulary"),
        ({"row_elements": 0}, "row_elements"),
        ({"window": -1}, "window"),
        ({"max_positions": 0}, "max_positions"),
        ({"max_frame_bytes": 4095}, "max_frame_bytes"),
        ({"max_slots": 200}, "max_frame_bytes"),  # 200 x (32 + 24) bytes of reply do not fit in 8192
        ({"row_elements": 5000}, "max_frame_bytes"),
        ({"block_length": 65}, "block_length"),
        ({"max_slots": 1025}, "max_slots"),
        ({"tap_count": 0}, "tap_count"),
    ],
)
def test_a_shape_that_no_session_could_have_is_named(changes: dict[str, Any], field: str) -> None:
    assert refused_field(check_shape, replace(SHAPE, **changes), "hello") == f"hello.{field}"


def other(name: str) -> Any:
    value = getattr(SHAPE, name)
    if isinstance(value, bytes):
        return bytes(reversed(value))
    return RowForm.PROJECTED if name == "row_form" else type(value)(value + 1)


@pytest.mark.parametrize("name", COMPARED)
def test_first_mismatch_names_a_differing_field_and_both_values(name: str) -> None:
    worker = replace(SHAPE, **{name: other(name)})
    found = first_mismatch(SHAPE, worker)
    assert found is not None
    field, detail = found
    assert field == f"hello.{name}"
    for shape, side in ((SHAPE, "engine"), (worker, "worker")):
        value = getattr(shape, name)
        shown = value.hex() if isinstance(value, bytes) else getattr(value, "name", str(value))
        assert f"the {side} has {shown}" in detail


@pytest.mark.parametrize("name", NEGOTIATED)
def test_the_worker_must_offer_at_least_what_the_engine_needs(name: str) -> None:
    value = getattr(SHAPE, name)
    assert first_mismatch(SHAPE, replace(SHAPE, **{name: value + 1})) is None
    assert first_mismatch(replace(SHAPE, **{name: value + 1}), SHAPE) == (
        f"hello.{name}",
        f"the engine needs {value + 1}, the worker allows {value}",
    )


def test_an_unstated_target_binding_is_not_compared() -> None:
    unstated = replace(SHAPE, target_binding=UNSTATED)
    assert first_mismatch(SHAPE, unstated) is None
    assert first_mismatch(unstated, SHAPE) is None


# --- misuse by our own side is a ContractError too, never an exception of the codec's machinery ----------


@pytest.mark.parametrize(
    ("envelope", "message", "field"),
    [
        (Envelope(Op.STEP, 3, 1), Ping(1), "header.op"),
        (Envelope(Op.PING, 0, 1, Status.BUSY), Ping(1), "header.status"),
        (Envelope(Op.PING, 2**32, 1), Ping(1), "header.epoch"),
        (Envelope(Op.PING, 0, 2**64), Ping(1), "header.round"),
        (Envelope(Op.PING, 0, -1), Ping(1), "header.round"),
        (Envelope(Op.PING, 0, 1), Ping(2**64), "ping.payload"),
        (Envelope(Op.HELLO, 0, 1), Hello(ENGINE_ID, Policy.SHADOW, SHAPE), "header.epoch"),
        (Envelope(Op.HELLO, 1, 1), Hello(bytes(16), Policy.SHADOW, SHAPE), "hello.engine_id"),
        (Envelope(Op.HELLO, 1, 1), Hello(b"short", Policy.SHADOW, SHAPE), "hello.engine_id"),
        (Envelope(Op.GOODBYE, 1, 1), Goodbye(b"short"), "goodbye.engine_id"),
        (Envelope(Op.STEP, 1, 1), STEP, "header.op"),  # without the session's shape
    ],
)
def test_a_request_that_cannot_be_sent_names_its_field(
    envelope: Envelope, message: Request, field: str
) -> None:
    assert refused_field(encode_request, envelope, message) == field


@pytest.mark.parametrize(
    ("envelope", "message", "field"),
    [
        (Envelope(Op.HELLO, 1, 1), replace(HELLO_REPLY, worker_name="x" * 33), "hello_reply.worker_name"),
        (Envelope(Op.HELLO, 1, 1), replace(HELLO_REPLY, worker_name="a\0b"), "hello_reply.worker_name"),
        (Envelope(Op.HELLO, 1, 1), replace(HELLO_REPLY, worker_name="\ud800"), "hello_reply.worker_name"),
        (Envelope(Op.STATS, 0, 1), StatsReply("\ud800"), "stats_reply.text"),
        (Envelope(Op.STATS, 0, 1), StatsReply("x" * ((1 << 20) + 1)), "stats_reply.text_bytes"),
        (Envelope(Op.STATS, 0, 1, Status.BUSY), StatsReply(""), "header.status"),
        (Envelope(Op.STEP, 1, 1), STEP_REPLY, "header.op"),  # without its STEP
        (Envelope(Op.PING, 0, 1, Status.BUSY), Refused(Op.PING, Status.DRAINING, "x", "y"), "header.status"),
        (Envelope(Op.PING, 0, 1, Status.BUSY), Refused(Op.STATS, Status.BUSY, "x", "y"), "header.op"),
        (Envelope(Op.PING, 0, 1, Status.BUSY), Refused(Op.PING, Status.BUSY, "é", "y"), "refusal.field"),
        (
            Envelope(Op.PING, 0, 1, Status.BUSY),
            Refused(Op.PING, Status.BUSY, "f" * 129, "y"),
            "refusal.field_bytes",
        ),
        (Envelope(Op.HELLO, 1, 1, Status.MISMATCH), Refused(Op.HELLO, Status.MISMATCH, "x", "y"), "refusal"),
        (
            Envelope(Op.UNREADABLE, 0, 0, Status.BUSY),
            Refused(Op.UNREADABLE, Status.BUSY, "x", "y"),
            "header.op",
        ),
    ],
)
def test_a_reply_that_cannot_be_sent_names_its_field(envelope: Envelope, message: Reply, field: str) -> None:
    assert refused_field(encode_reply, envelope, message, Stats(), SHAPE) == field


def test_a_refusals_clause_is_cut_to_its_limit_at_a_character() -> None:
    envelope = Envelope(Op.PING, 0, 1)
    refusal = Refused(Op.PING, Status.BUSY, "header.op", "é" * 400 + "\ud800")
    wire = b"".join(encode_reply(replace(envelope, status=Status.BUSY), refusal, Ping(1)))
    read = decode_reply(wire, envelope, Ping(1))
    assert isinstance(read, Refused)
    assert read.detail == "é" * 256  # 512 bytes of two each


def test_the_records_and_the_messages_have_the_same_fields_in_the_same_order() -> None:
    assert layout.STEP_ENTRY.names == tuple(f.name for f in fields(StepEntry))
    assert layout.STEP_REPLY_ENTRY.names[:5] == tuple(f.name for f in fields(StepReplyEntry))[:5]
    assert {f.name for f in layout.SHAPE_FIELDS if not f.reserved} == set(vars(SHAPE))


def test_a_step_needs_its_session_to_be_read() -> None:
    assert refused_field(decode_request, BY_NAME["step"].encoded, None) == "header.op"


@pytest.mark.parametrize("count", [1, 60, 61, 200])
def test_a_step_of_any_size_fits_the_parts_that_a_transport_takes(count: int) -> None:
    shape = replace(SHAPE, max_slots=200, max_frame_bytes=1 << 20)
    entries = tuple(StepEntry(slot, EntryFlag.RESET, 1, 0, 1, 0, 0, 0) for slot in range(count))
    rows = tuple(bytes([slot]) * shape.row_bytes for slot in range(count))
    parts = encode_request(STEP_ENVELOPE, Step(entries, rows), shape)
    assert len(parts) <= 62
    assert decode_request(b"".join(parts), shape)[1] == Step(entries, rows)
