"""Writes the golden vectors: `python write_vectors.py` beside this file; a test compares them with the code.

vectors/accepted.json: messages, each with its bytes and what they decode to.
vectors/refused.json: bytes that no end may accept, each with the field that the refusal names.
vectors/engram_*.json: the same of `engram-v1`.
"""

import struct
from collections.abc import Iterator
from functools import partial

import engram_contract_vectors
from contract_samples import BY_NAME, SAMPLES, SHAPE
from contract_vectors import mutant, plain, vectors, write
from ofl.contract.dspark_v1.layout import (
    GOODBYE,
    HEADER,
    HELLO,
    HELLO_REPLY,
    PING_REPLY,
    REFUSAL,
    STATS_REPLY,
    STEP,
    STEP_ENTRY,
    STEP_REPLY,
    STEP_REPLY_ENTRY,
)

_mutant = partial(mutant, BY_NAME, HEADER)


def accepted() -> dict[str, object]:
    """The samples of every message."""
    return {"contract": "dspark-v1", "session_shape": plain(SHAPE), "vectors": vectors(SAMPLES)}


def refused() -> dict[str, object]:
    """Mutations of the samples, one field each."""
    return {"contract": "dspark-v1", "session_shape": plain(SHAPE), "vectors": list(_refusals())}


def _refusals() -> Iterator[dict[str, object]]:
    entry_at, rows_at = HEADER.size + STEP.size, HEADER.size + STEP.size + 3 * STEP_ENTRY.size
    reply_at = HEADER.size + STEP_REPLY.size
    drafts_at = reply_at + STEP_REPLY_ENTRY.size
    nan = struct.pack("<f", float("nan"))
    yield _mutant("empty", "ping", cut=0, field="header")
    yield _mutant("header cut", "ping", cut=HEADER.size - 1, field="header")
    yield _mutant("another protocol", "ping", at=0, data=b"GET ", field="header.magic")
    yield _mutant("next version", "ping", HEADER, "version", 2)
    yield _mutant("unknown operation", "ping", HEADER, "op", 6)
    yield _mutant("operation zero in a request", "ping", HEADER, "op", 0)
    yield _mutant("reply where a request is due", "ping", HEADER, "kind", 1)
    yield _mutant("status in a request", "ping", HEADER, "status", 1)
    yield _mutant("reserved header field", "ping", HEADER, "reserved1", 1)
    yield _mutant("epoch zero in a session", "step", HEADER, "epoch", 0)
    yield _mutant("one byte too many", "ping", append=b"\0", field="header.body_bytes")
    yield _mutant("body cut, header true", "ping", cut=HEADER.size + 4, resize=True, field="ping")
    yield _mutant("engine id of zeros", "hello", at=HEADER.size, data=bytes(16), field="hello.engine_id")
    yield _mutant("unknown policy", "hello", HELLO, "policy", 9)
    yield _mutant("no vocabulary", "hello", HELLO, "vocabulary", 0)
    yield _mutant("unknown row type", "hello", HELLO, "row_dtype", 3)
    yield _mutant("block too long", "hello", HELLO, "block_length", 65, field="hello.block_length")
    yield _mutant(
        "frame too small for its slots", "hello", HELLO, "max_slots", 1000, field="hello.max_frame_bytes"
    )
    yield _mutant("unknown HELLO flag", "hello_reply", HELLO_REPLY, "flags", 8)
    yield _mutant("name that is not UTF-8", "hello_reply", HELLO_REPLY, "worker_name", b"\xff" * 32)
    yield _mutant("echo of another ping", "ping_reply", PING_REPLY, "payload", 1)
    yield _mutant("statistics longer than said", "stats_reply", STATS_REPLY, "text_bytes", 3)
    yield _mutant("goodbye of nobody", "goodbye", GOODBYE, "engine_id", bytes(16))
    yield _mutant("refusal with a field too long", "refused_no_session", REFUSAL, "field_bytes", 129)
    yield _mutant("entry count without entries", "step", STEP, "entry_count", 0)
    yield _mutant("entry count over the slots", "step", STEP, "entry_count", 65535)
    yield _mutant("row count forged", "step", STEP, "row_count", 0xFFFFFFFF)
    yield _mutant("rows of an entry forged", "step", at=entry_at + 12, data=_u32(4), field="step.row_count")
    yield _mutant("a slot twice", "step", at=entry_at + 32, data=b"\x02", field="step_entry[1].slot")
    yield _mutant("unknown flag", "step", at=entry_at + 2, data=b"\x0f", field="step_entry[0].flags")
    yield _mutant("generation zero", "step", at=entry_at + 4, data=_u32(0), field="step_entry[0].generation")
    yield _mutant(
        "anchor outside the vocabulary",
        "step",
        at=entry_at + 20,
        data=_u32(1000),
        field="step_entry[0].anchor",
    )
    yield _mutant(
        "partial window not said", "step", at=entry_at + 2, data=b"\x03", field="step_entry[0].flags"
    )
    yield _mutant("last row cut", "step", cut=rows_at + 35, resize=True, field="step.row_count")
    yield _mutant(
        "draft outside the vocabulary",
        "step_reply",
        at=drafts_at,
        data=_u32(1000),
        field="step_reply_entry[0].drafts",
    )
    yield _mutant(
        "confidence NaN", "step_reply", at=drafts_at + 8, data=nan, field="step_reply_entry[0].confidences"
    )
    yield _mutant(
        "margin NaN", "step_reply", at=drafts_at + 16, data=nan, field="step_reply_entry[0].margins"
    )
    yield _mutant("another round", "step_reply", HEADER, "round", 5)
    yield _mutant(
        "another generation",
        "step_reply",
        at=reply_at + 4,
        data=_u32(8),
        field="step_reply_entry[0].generation",
    )
    yield _mutant("entry too many", "step_reply", STEP_REPLY, "entry_count", 4)


def _u32(value: int) -> bytes:
    return struct.pack("<I", value)


if __name__ == "__main__":
    write({"accepted.json": accepted(), "refused.json": refused()})
    write(engram_contract_vectors.documents())
