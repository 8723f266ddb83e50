"""The one invariant of the codec: any bytes give a message or a ContractError that names a field, nothing
else.
"""

import re
import tracemalloc

import pytest
from contract_samples import SAMPLES, SHAPE, Sample, sent_envelope
from contract_strategies import U32, U64, damaged, hello_replies, hellos, shapes, step_replies, steps
from hypothesis import given, settings
from hypothesis import strategies as st
from ofl.contract.dspark_v1 import (
    Envelope,
    Kind,
    Op,
    Reply,
    Request,
    Shape,
    Stats,
    StatsReply,
    Step,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    peek,
    salvage,
)
from ofl.contract.dspark_v1.layout import HEADER, RECORDS
from ofl.contract.records import ContractError

BODY_BYTES_AT = HEADER.offsets["body_bytes"]
RECORD_NAMES = {record.name for record in RECORDS} | {"stats", "goodbye_reply"}


def decoded_or_refused(sample: Sample, data: bytes) -> Request | Reply | None:
    """What data decodes to in the sample's place; None where it was refused, with the field's name
    checked."""
    try:
        if sample.reply is None:
            return decode_request(data, SHAPE)[1]
        return decode_reply(data, sent_envelope(sample), sample.request, SHAPE)
    except ContractError as error:
        refusal = error
    assert re.split(r"[.\[]", refusal.field)[0] in RECORD_NAMES, refusal.field
    assert refusal.detail
    return None


@given(st.sampled_from(SAMPLES), st.binary(max_size=400))
@settings(max_examples=500)
def test_arbitrary_bytes_are_decoded_or_refused(sample: Sample, data: bytes) -> None:
    decoded_or_refused(sample, data)


@given(st.data(), st.sampled_from(SAMPLES))
@settings(max_examples=1000)
def test_damaged_messages_are_refused_or_encode_to_themselves(data: st.DataObject, sample: Sample) -> None:
    wire = data.draw(damaged(sample.encoded, BODY_BYTES_AT))
    message = decoded_or_refused(sample, wire)
    if message is None:
        return
    if sample.reply is None:
        envelope = peek(wire, Kind.REQUEST)
        assert isinstance(message, Request)
        assert b"".join(encode_request(envelope, message, SHAPE)) == wire
    else:
        envelope = peek(wire, Kind.REPLY)
        assert isinstance(message, Reply)
        assert b"".join(encode_reply(envelope, message, sample.request, SHAPE)) == wire


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_truncation_is_refused(sample: Sample) -> None:
    wire = sample.encoded
    for size in range(len(wire)):
        assert decoded_or_refused(sample, wire[:size]) is None, size


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_single_bit_flip_is_refused_or_gives_another_message(sample: Sample) -> None:
    kind = Kind.REQUEST if sample.reply is None else Kind.REPLY
    original = repr(decoded_or_refused(sample, sample.encoded))
    for bit in range(8 * len(sample.encoded)):
        wire = bytearray(sample.encoded)
        wire[bit // 8] ^= 1 << bit % 8
        # By its text, in which -0.0 and 0.0 differ.
        if repr(decoded_or_refused(sample, bytes(wire))) == original:
            assert peek(wire, kind) != peek(sample.encoded, kind)


@given(st.binary(max_size=100))
def test_salvage_never_raises(data: bytes) -> None:
    envelope = salvage(data)
    assert isinstance(envelope.op, Op)


@given(st.data(), hellos(), st.integers(1, 2**32 - 1), U64)
def test_hello_round_trips(data: st.DataObject, hello: Request, epoch: int, round_: int) -> None:
    envelope = Envelope(Op.HELLO, epoch, round_)
    wire = b"".join(encode_request(envelope, hello))
    assert decode_request(wire) == (envelope, hello)
    reply = data.draw(hello_replies())
    wire = b"".join(encode_reply(envelope, reply, hello))
    assert decode_reply(wire, envelope, hello) == reply


@given(st.data(), shapes(), st.integers(1, 2**32 - 1), U64)
@settings(max_examples=300)
def test_step_and_its_reply_round_trip(data: st.DataObject, shape: Shape, epoch: int, round_: int) -> None:
    step = data.draw(steps(shape))
    envelope = Envelope(Op.STEP, epoch, round_)
    wire = b"".join(encode_request(envelope, step, shape))
    assert decode_request(wire, shape) == (envelope, step)
    reply = data.draw(step_replies(shape, step))
    wire = b"".join(encode_reply(envelope, reply, step, shape))
    assert decode_reply(wire, envelope, step, shape) == reply


@given(st.text(max_size=50), U32)
def test_statistics_round_trip_or_are_refused_for_what_is_no_text(text: str, epoch: int) -> None:
    envelope = Envelope(Op.STATS, epoch, 1)
    wire = b"".join(encode_reply(envelope, StatsReply(text), Stats()))
    assert decode_reply(wire, envelope, Stats()) == StatsReply(text)


def test_a_forged_count_allocates_nothing_large() -> None:
    step = next(s for s in SAMPLES if s.name == "step")
    wire = bytearray(step.encoded)
    wire[HEADER.size : HEADER.size + 8] = b"\xff\xff\0\0\xff\xff\xff\xff"
    tracemalloc.start()
    try:
        assert decoded_or_refused(step, bytes(wire)) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_rows_are_views_of_the_message() -> None:
    step = next(s for s in SAMPLES if s.name == "step")
    wire = bytearray(step.encoded)
    _, message = decode_request(wire, SHAPE)
    wire[-1] ^= 0xFF
    assert isinstance(message, Step)
    assert message.rows[-1][-1] == wire[-1]
