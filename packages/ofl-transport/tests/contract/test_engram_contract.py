"""`engram-v1`: golden vectors pin every message, and any bytes give a message or a ContractError that names a field."""

import json
import re
import struct
import tracemalloc
from typing import Any

import engram_contract_vectors
import pytest
from contract_strategies import damaged
from contract_vectors import as_text, comparable, read
from engram_contract_samples import BY_NAME, EMPTY, LOOKUP, OPEN, SAMPLES, EngramSample, sent_envelope
from engram_contract_strategies import U64, lookup_replies, lookups, open_replies, opens
from hypothesis import given, settings
from hypothesis import strategies as st
from ofl.contract.engram_v1 import (
    Envelope,
    Kind,
    Lookup,
    LookupPart,
    LookupReply,
    Op,
    Open,
    Planes,
    Refused,
    Reply,
    Request,
    Stats,
    StatsReply,
    Status,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    peek,
    salvage,
)
from ofl.contract.engram_v1.layout import HEADER, LOOKUP_REPLY, PLANE_ALIGNMENT, RECORDS, plane_bytes
from ofl.contract.records import ContractError

ACCEPTED = read("engram_accepted.json")
REFUSED = read("engram_refused.json")
RECORD_NAMES = {record.name for record in RECORDS} | {"stats"}


def decode(sample: EngramSample, wire: bytes) -> Request | Reply:
    if sample.reply is None:
        return decode_request(wire)[1]
    return decode_reply(wire, sent_envelope(sample), sample.request, OPEN)


def test_the_committed_vectors_are_what_the_generator_writes() -> None:
    documents = engram_contract_vectors.documents()
    assert json.loads(as_text(documents["engram_accepted.json"])) == ACCEPTED
    assert json.loads(as_text(documents["engram_refused.json"])) == REFUSED


def test_every_message_type_and_record_has_a_vector() -> None:
    types = {vector["type"] for vector in ACCEPTED["vectors"]}
    assert types == {member.__name__ for member in (*Request.__args__, *Reply.__args__)}
    assert {re.split(r"[.\[]", vector["field"])[0] for vector in REFUSED["vectors"]} == RECORD_NAMES
    assert len(BY_NAME) == len(SAMPLES)


@pytest.mark.parametrize("vector", ACCEPTED["vectors"], ids=lambda v: v["name"])
def test_accepted_bytes_decode_to_the_written_values(vector: dict[str, Any]) -> None:
    message = decode(BY_NAME[vector["name"]], bytes.fromhex(vector["hex"]))
    assert comparable(message) == vector["message"]


@pytest.mark.parametrize("vector", REFUSED["vectors"], ids=lambda v: v["name"])
def test_refused_bytes_name_their_field(vector: dict[str, Any]) -> None:
    with pytest.raises(ContractError) as caught:
        decode(BY_NAME[vector["of"]], bytes.fromhex(vector["hex"]))
    assert caught.value.field == vector["field"]
    assert caught.value.detail


# The bytes below were put together by hand from the tables in docs/contract/engram-v1.md.


def test_lookup_bytes_by_hand() -> None:
    assert BY_NAME["lookup"].encoded.hex(" ") == (
        "45 47 52 4d 01 00 02 00 00 00 00 00 00 00 00 00 "  # 'EGRM', version 1, op 2, a request
        "88 77 66 55 44 33 22 11 34 00 00 00 00 00 00 00 "  # batch, 8 + 2 x 8 + 7 x 4 = 52 bytes
        "01 00 00 00 02 00 00 00 "  # CHECKSUM, 2 parts
        "01 00 00 00 03 00 00 00 00 00 00 00 04 00 00 00 "  # layer 1: 3 ids; layer 0: 4 ids
        "07 00 00 00 ff ff ff ff fe ff ff ff "
        "ca 00 00 00 64 00 00 00 64 00 00 00 64 00 00 00"
    )


def test_a_lookup_reply_by_hand() -> None:
    wire = BY_NAME["lookup_reply"].encoded
    assert wire[:64].hex(" ") == (
        "45 47 52 4d 01 00 02 01 00 00 00 00 00 00 00 00 "
        "88 77 66 55 44 33 22 11 60 01 00 00 00 00 00 00 "  # 32 + 64 + 64 + 128 + 64 = 352 bytes
        "01 00 00 00 07 00 00 00 88 77 66 55 44 33 22 11 "  # CHECKSUM, 3 + 4 rows, checksum
        "cd 81 01 00 00 00 00 00 00 00 00 00 00 00 00 00"  # 98,765 ns
    )
    planes = wire[64:]
    assert planes[:64] == bytes(range(1, 61)) + bytes(4)  # 3 rows of 20 values
    assert planes[64:128] == bytes(range(129, 144)) + bytes(49)  # 3 rows of 5 scales
    assert planes[128:256] == bytes(range(65, 145)) + bytes(48)  # 4 rows of 20 values
    assert planes[256:] == bytes(range(193, 213)) + bytes(44)  # 4 rows of 5 scales


@pytest.mark.parametrize(
    ("rows", "width", "size"), [(0, 256, 0), (1, 256, 256), (1, 8, 64), (8, 8, 64), (9, 8, 128)]
)
def test_planes_are_padded_to_the_alignment(rows: int, width: int, size: int) -> None:
    assert PLANE_ALIGNMENT == 64
    assert plane_bytes(rows, width) == size


def test_a_reply_begins_its_planes_at_a_multiple_of_the_alignment() -> None:
    assert (HEADER.size + LOOKUP_REPLY.size) % PLANE_ALIGNMENT == 0


# --- any bytes ---


def decoded_or_refused(sample: EngramSample, data: bytes) -> Request | Reply | None:
    """What data decodes to in the sample's place; None where it was refused, with the field's name checked."""
    try:
        return decode(sample, data)
    except ContractError as error:
        refusal = error
    assert re.split(r"[.\[]", refusal.field)[0] in RECORD_NAMES, refusal.field
    assert refusal.detail
    return None


@given(st.sampled_from(SAMPLES), st.binary(max_size=400))
@settings(max_examples=500)
def test_arbitrary_bytes_are_decoded_or_refused(sample: EngramSample, data: bytes) -> None:
    decoded_or_refused(sample, data)


@given(st.data(), st.sampled_from(SAMPLES))
@settings(max_examples=1500)
def test_damaged_messages_are_refused_or_encode_to_themselves(
    data: st.DataObject, sample: EngramSample
) -> None:
    wire = data.draw(damaged(sample.encoded, HEADER.offsets["body_bytes"]))
    message = decoded_or_refused(sample, wire)
    if message is None:
        return
    if sample.reply is None:
        assert isinstance(message, Request)
        assert b"".join(encode_request(peek(wire, Kind.REQUEST), message)) == wire
    else:
        envelope = peek(wire, Kind.REPLY)
        assert isinstance(message, Reply)
        assert b"".join(encode_reply(envelope, message, sample.request, OPEN)) == wire


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_truncation_is_refused(sample: EngramSample) -> None:
    wire = sample.encoded
    for size in range(len(wire)):
        assert decoded_or_refused(sample, wire[:size]) is None, size


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_single_bit_flip_is_refused_or_gives_another_message(sample: EngramSample) -> None:
    kind = Kind.REQUEST if sample.reply is None else Kind.REPLY
    original = comparable(decode(sample, sample.encoded))
    for bit in range(8 * len(sample.encoded)):
        wire = bytearray(sample.encoded)
        wire[bit // 8] ^= 1 << bit % 8
        message = decoded_or_refused(sample, bytes(wire))
        if message is not None and comparable(message) == original:
            assert peek(wire, kind) != peek(sample.encoded, kind)


@given(st.binary(max_size=100))
def test_salvage_never_raises(data: bytes) -> None:
    assert isinstance(salvage(data).op, Op)


def test_salvage_addresses_what_it_can_read() -> None:
    wire = bytearray(BY_NAME["lookup"].encoded)
    assert salvage(wire[: HEADER.size]) == Envelope(Op.LOOKUP, 0x1122334455667788)
    wire[6] = 9
    assert salvage(wire) == Envelope(Op.UNREADABLE, 0x1122334455667788)
    wire[0] ^= 1
    assert salvage(wire) == Envelope(Op.UNREADABLE, 0)


@given(st.data(), opens(), U64)
def test_open_and_its_reply_round_trip(data: st.DataObject, message: Open, batch: int) -> None:
    envelope = Envelope(Op.OPEN, batch)
    wire = b"".join(encode_request(envelope, message))
    assert decode_request(wire) == (envelope, message)
    reply = data.draw(open_replies(message))
    wire = b"".join(encode_reply(envelope, reply, message))
    assert decode_reply(wire, envelope, message) == reply


@given(st.data(), opens(), lookups(), U64)
@settings(max_examples=300)
def test_lookup_and_its_reply_round_trip(
    data: st.DataObject, opened: Open, message: Lookup, batch: int
) -> None:
    envelope = Envelope(Op.LOOKUP, batch)
    wire = b"".join(encode_request(envelope, message))
    assert decode_request(wire) == (envelope, message)
    reply = data.draw(lookup_replies(message, opened))
    wire = b"".join(encode_reply(envelope, reply, message, opened))
    assert decode_reply(wire, envelope, message, opened) == reply


@given(st.text(max_size=50), U64)
def test_statistics_round_trip(text: str, batch: int) -> None:
    envelope = Envelope(Op.STATS, batch)
    wire = b"".join(encode_reply(envelope, StatsReply(text), Stats()))
    assert decode_reply(wire, envelope, Stats()) == StatsReply(text)


def test_a_forged_count_allocates_nothing_large() -> None:
    wire = bytearray(BY_NAME["lookup"].encoded)
    struct.pack_into("<I", wire, HEADER.size + 12, 0xFFFFFFF0)
    tracemalloc.start()
    with pytest.raises(ContractError):
        decode_request(wire)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


# --- what may not be sent ---


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Lookup(()), "lookup.parts"),
        (Lookup((LookupPart(0, b"abc"),)), "lookup_part[0].ids"),
        (Lookup((LookupPart(0, b""), LookupPart(0, b""))), "lookup_part[1].layer"),
        (Lookup((LookupPart(64, b""),)), "lookup_part[0].layer"),
        (Lookup((LookupPart(0, memoryview(bytes(4))), LookupPart(1, bytes(4 << 24)))), "lookup_part.ids"),
    ],
    ids=["no parts", "half an id", "twice", "beyond all layers", "too many rows"],
)
def test_a_lookup_that_breaks_a_rule_never_leaves(message: Lookup, field: str) -> None:
    with pytest.raises(ContractError) as caught:
        encode_request(Envelope(Op.LOOKUP, 1), message)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("reply", "field"),
    [
        (LookupReply((Planes(b"", b""),)), "lookup_reply.planes"),
        (LookupReply((Planes(b"x", b""), Planes(b"", b""))), "lookup_reply.planes"),
        (LookupReply((Planes(b"", b""), Planes(b"", b"")), checksum=1), "lookup_reply.checksum"),
        (StatsReply("{}"), "header.op"),
        (Refused(Op.LOOKUP, Status.OK, "x", "y"), "header.status"),
        (Refused(Op.OPEN, Status.LIMIT, "x", "y"), "header.op"),
    ],
)
def test_a_reply_that_breaks_a_rule_never_leaves(reply: Reply, field: str) -> None:
    with pytest.raises(ContractError) as caught:
        encode_reply(Envelope(Op.LOOKUP, 1), reply, EMPTY, OPEN)
    assert caught.value.field == field


def test_a_lookup_needs_the_open_that_says_how_wide_rows_are() -> None:
    wire = BY_NAME["lookup_reply"].encoded
    with pytest.raises(ContractError, match="before an OPEN"):
        decode_reply(wire, sent_envelope(BY_NAME["lookup_reply"]), LOOKUP)


def test_a_clause_that_is_too_long_is_cut_at_a_character_and_leaves() -> None:
    envelope = Envelope(Op.STATS, 1, Status.LIMIT)
    long = Refused(Op.STATS, Status.LIMIT, "header.op", "x" + "é" * 600)
    wire = b"".join(encode_reply(envelope, long, None))
    reply = decode_reply(wire, Envelope(Op.STATS, 1), Stats())
    assert isinstance(reply, Refused)
    assert reply.detail == "x" + "é" * 255
    assert reply.said.startswith("header.op: x")
