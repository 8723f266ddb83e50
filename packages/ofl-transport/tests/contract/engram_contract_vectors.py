"""The golden vectors of `engram-v1`, which `write_vectors.py` writes to vectors/engram_*.json."""

from collections.abc import Iterator
from functools import partial

from contract_vectors import mutant, plain, vectors
from engram_contract_samples import BY_NAME, OPEN, SAMPLES
from ofl.contract.engram_v1 import layout
from ofl.contract.engram_v1.layout import HEADER, LOOKUP_REPLY, OPEN_LAYER, REFUSAL, STATS_REPLY

_mutant = partial(mutant, BY_NAME, HEADER)
_LAYERS_AT = HEADER.size + layout.OPEN.size
_PARTS_AT = HEADER.size + layout.LOOKUP.size
_PLANES_AT = HEADER.size + LOOKUP_REPLY.size


def documents() -> dict[str, dict[str, object]]:
    """By file name."""
    head = {"contract": "engram-v1", "opened": plain(OPEN)}
    return {
        "engram_accepted.json": {**head, "vectors": vectors(SAMPLES)},
        "engram_refused.json": {**head, "vectors": list(refusals())},
    }


def refusals() -> Iterator[dict[str, object]]:
    """Mutations of the samples, one field each."""
    yield from _headers()
    yield from _opens()
    yield from _lookups()
    yield from _replies()


def _headers() -> Iterator[dict[str, object]]:
    yield _mutant("empty", "stats", cut=0, field="header")
    yield _mutant("header cut", "stats", cut=HEADER.size - 1, field="header")
    yield _mutant("another protocol", "stats", at=0, data=b"GET ", field="header.magic")
    yield _mutant("next version", "stats", HEADER, "version", 2)
    yield _mutant("unknown operation", "stats", HEADER, "op", 4)
    yield _mutant("operation zero in a request", "stats", HEADER, "op", 0)
    yield _mutant("reply where a request is due", "stats", HEADER, "kind", 1)
    yield _mutant("status in a request", "stats", HEADER, "status", 1)
    for name in ("reserved0", "reserved1", "reserved2"):
        yield _mutant(f"header.{name} set", "stats", HEADER, name, 1)
    yield _mutant("one byte too many", "stats", append=b"\0", field="header.body_bytes")
    yield _mutant("a body in a STATS", "stats", append=b"\0" * 8, resize=True, field="stats")


def _opens() -> Iterator[dict[str, object]]:
    record, layer = layout.OPEN, OPEN_LAYER
    yield _mutant("OPEN cut", "open", cut=HEADER.size + 40, resize=True, field="open")
    for name, value in (
        ("columns", 0),
        ("columns", layout.COLUMNS_MAX + 1),
        ("scales", 0),
        ("scales", 21),
        ("ranks", 0),
        ("ranks", layout.RANKS_MAX + 1),
        ("rank", 3),
        ("layers", 0),
        ("layers", 65),
        ("layers", 3),
        ("batch_rows_max", 0),
        ("batch_rows_max", layout.BATCH_ROWS_MAX + 1),
        ("reserved0", 1),
        ("reserved1", 1),
    ):
        yield _mutant(f"open.{name} {value}", "open", record, name, value)
    second = _LAYERS_AT + layer.size
    end, start, number, reserved = (
        second + layer.offsets[name] for name in ("row_end", "row_start", "layer", "reserved0")
    )
    yield _mutant("ids beyond 32 bits", "open", at=end, data=_u64(1 << 32), field="open_layer[1].row_end")
    yield _mutant(
        "range backwards", "open", at=start, data=_u64(0xFFFFFFFF + 1), field="open_layer[1].row_start"
    )
    yield _mutant("a layer twice", "open", at=number, data=_u32(1), field="open_layer[1].layer")
    yield _mutant("layer's reserved field", "open", at=reserved, data=_u32(1), field="open_layer.reserved0")


def _lookups() -> Iterator[dict[str, object]]:
    record = layout.LOOKUP
    yield _mutant("LOOKUP cut", "lookup", cut=HEADER.size + 4, resize=True, field="lookup")
    yield _mutant("unknown flag", "lookup", record, "flags", 2)
    yield _mutant("no parts", "lookup", record, "parts", 0)
    yield _mutant("too many parts", "lookup", record, "parts", 65)
    yield _mutant("reserved field of a LOOKUP", "lookup", record, "reserved0", 1)
    yield _mutant("parts cut", "lookup", cut=_PARTS_AT + 8, resize=True, field="lookup.parts")
    yield _mutant("a part twice", "lookup", at=_PARTS_AT, data=_u32(0), field="lookup_part[1].layer")
    yield _mutant("layer beyond all", "lookup", at=_PARTS_AT, data=_u32(64), field="lookup_part[0].layer")
    yield _mutant("ids forged", "lookup", at=_PARTS_AT + 4, data=_u32(0xFFFFFFFF), field="lookup_part.ids")
    yield _mutant("last id cut", "lookup", cut=-1, resize=True, field="lookup_part.ids")
    yield _mutant("an id too many", "lookup", append=_u32(1), resize=True, field="lookup_part.ids")


def _replies() -> Iterator[dict[str, object]]:
    yield _mutant("another identity", "open_reply", at=HEADER.size, data=b"\xff", field="open_reply.identity")
    yield _mutant("fewer rows than asked for", "open_reply", layout.OPEN_REPLY, "batch_rows_max", 639)
    yield _mutant("no lookup allowed", "open_reply", layout.OPEN_REPLY, "calls_max", 0)
    yield _mutant("OPEN's reply cut", "open_reply", cut=-8, resize=True, field="open_reply")
    yield _mutant("another batch", "lookup_reply", HEADER, "batch", 1)
    yield _mutant("another operation", "lookup_reply", HEADER, "op", 1)
    yield _mutant("unknown status", "lookup_reply", HEADER, "status", 10)
    yield _mutant("operation zero with OK", "lookup_reply", HEADER, "op", 0)
    yield _mutant("checksum not said", "lookup_reply", LOOKUP_REPLY, "flags", 0)
    yield _mutant("another number of rows", "lookup_reply", LOOKUP_REPLY, "rows", 6)
    yield _mutant("reserved field of a LOOKUP's reply", "lookup_reply", LOOKUP_REPLY, "reserved0", 1)
    yield _mutant("checksum unasked", "lookup_empty_reply", LOOKUP_REPLY, "checksum", 1)
    yield _mutant("last byte cut", "lookup_reply", cut=-1, resize=True, field="lookup_reply.planes")
    yield _mutant(
        "a line too many", "lookup_reply", append=bytes(64), resize=True, field="lookup_reply.planes"
    )
    behind_first = _PLANES_AT + 60
    yield _mutant(
        "bytes between planes", "lookup_reply", at=behind_first, data=b"\1", field="lookup_reply.planes"
    )
    yield _mutant("statistics longer than said", "stats_reply", STATS_REPLY, "text_bytes", 3)
    yield _mutant("statistics too long", "stats_reply", STATS_REPLY, "text_bytes", (1 << 20) + 1)
    yield _mutant("refusal with a field too long", "refused_identity", REFUSAL, "field_bytes", 129)
    yield _mutant("refusal with a clause too long", "refused_identity", REFUSAL, "detail_bytes", 513)
    yield _mutant("refusal cut", "refused_identity", cut=-1, resize=True, field="refusal")


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "little")
