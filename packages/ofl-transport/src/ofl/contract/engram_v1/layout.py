"""The bytes of `engram-v1`: every record and code of the table service, declared once.

Order on the wire: `HEADER`, then the record of the operation, then what follows it.  Little-endian throughout, no
padding but what is stated, reserved fields zero.  The semantics are in docs/contract/engram-v1.md.
"""

from enum import IntEnum, IntFlag

from ofl.contract.records import Field, Record

SERVICE = "engram"
VERSION = 1
MAGIC = 0x4D524745
"""The bytes 'EGRM'."""

LAYERS_MAX = 64
RANKS_MAX = 1024
COLUMNS_MAX = 65536
BATCH_ROWS_MAX = 1 << 24
"""Largest batch_rows_max that an OPEN may ask for."""
NO_ROW = 0xFFFFFFFF
"""An id without a row in this shard: its values and scales are zero bytes."""
FIELD_BYTES_MAX = 128
DETAIL_BYTES_MAX = 512
STATS_BYTES_MAX = 1 << 20
PLANE_ALIGNMENT = 64
"""Every plane of a reply begins at a multiple of it; zeros between."""


class Op(IntEnum):
    """What a message is about.  UNREADABLE: in refusals only, the request's operation could not be read."""

    UNREADABLE = 0
    OPEN = 1
    LOOKUP = 2
    STATS = 3


class Kind(IntEnum):
    """Direction of a message."""

    REQUEST = 0
    REPLY = 1


class Status(IntEnum):
    """Outcome of a message; anything but OK carries a REFUSAL record with the field at fault."""

    OK = 0
    BAD_MESSAGE = 1
    VERSION = 2
    IDENTITY = 3
    NO_TABLE = 4
    SHAPE = 5
    NOT_OPEN = 6
    BAD_ID = 7
    LIMIT = 8
    DRAINING = 9


class LookupFlag(IntFlag):
    """Flags of a LOOKUP and of its reply."""

    NONE = 0
    CHECKSUM = 1


LOOKUP_FLAGS_ALL = LookupFlag.CHECKSUM

HEADER = Record(
    "header",
    Field("magic", "u32", "0x4D524745, the bytes 'EGRM'"),
    Field("version", "u16", "contract version of this message, 1"),
    Field("op", "u8", "operation, Op"),
    Field("kind", "u8", "0 request, 1 reply"),
    Field("status", "u16", "outcome; 0 in requests"),
    Field("reserved0", "u16", ""),
    Field("reserved1", "u32", ""),
    Field("batch", "u64", "the client's number for this message, echoed by the reply"),
    Field("body_bytes", "u32", "bytes that follow this header"),
    Field("reserved2", "u32", ""),
)

REFUSAL = Record(
    "refusal",
    Field("field_bytes", "u16", "length of the field's name that follows, ASCII, at most 128"),
    Field("detail_bytes", "u16", "length of the clause after it, UTF-8, at most 512"),
    Field("reserved0", "u32", ""),
)

OPEN = Record(
    "open",
    Field("identity", "bytes32", "identity of the client's manifest"),
    Field("columns", "u32", "values of a row, one byte each"),
    Field("scales", "u32", "scales of a row, one byte each"),
    Field("rank", "u16", "whose shards are read"),
    Field("ranks", "u16", "shards of each layer"),
    Field("layers", "u16", "OPEN_LAYER records that follow, 1 to 64"),
    Field("reserved0", "u16", ""),
    Field("batch_rows_max", "u32", "most rows that one LOOKUP of this connection will ask for"),
    Field("reserved1", "u32", ""),
)

OPEN_LAYER = Record(
    "open_layer",
    Field("row_start", "u64", "id of the shard's first row"),
    Field("row_end", "u64", "and past its last"),
    Field("layer", "u32", "the model's layer"),
    Field("reserved0", "u32", ""),
)

OPEN_REPLY = Record(
    "open_reply",
    Field("identity", "bytes32", "identity of the server's manifest"),
    Field("boot", "u64", "drawn at random by the server's process"),
    Field(
        "batch_rows_max",
        "u32",
        "most rows that one LOOKUP of this connection may ask for; not below the client's",
    ),
    Field("calls_max", "u32", "unanswered LOOKUPs that this connection may have"),
)

LOOKUP = Record(
    "lookup",
    Field("flags", "u32", "LookupFlag"),
    Field("parts", "u16", "LOOKUP_PART records that follow, 1 to 64"),
    Field("reserved0", "u16", ""),
)

LOOKUP_PART = Record(
    "lookup_part",
    Field("layer", "u32", "position in OPEN's layers; no layer twice"),
    Field("ids", "u32", "ids of this part; they follow after the last LOOKUP_PART, part by part, u32 each"),
)

LOOKUP_REPLY = Record(
    "lookup_reply",
    Field("flags", "u32", "as asked"),
    Field("rows", "u32", "rows of all parts"),
    Field(
        "checksum",
        "u64",
        "XXH3 (64 bits) over all that follows this record, seeded with what was asked; 0 without CHECKSUM",
    ),
    Field("gather_ns", "u64", "what the server spent from reading the request to its last row"),
    Field("reserved0", "u64", ""),
)

STATS_REPLY = Record(
    "stats_reply",
    Field("text_bytes", "u32", "length of the JSON text that follows, UTF-8"),
    Field("reserved0", "u32", ""),
)

RECORDS = (HEADER, REFUSAL, OPEN, OPEN_LAYER, OPEN_REPLY, LOOKUP, LOOKUP_PART, LOOKUP_REPLY, STATS_REPLY)
ENUMS = (Op, Kind, Status, LookupFlag)


def plane_bytes(rows: int, width: int) -> int:
    """Bytes of one plane with the zeros that follow it: rows x width, up to a multiple of PLANE_ALIGNMENT."""
    return -(-rows * width // PLANE_ALIGNMENT) * PLANE_ALIGNMENT


REPLY_HEAD_BYTES = HEADER.size + LOOKUP_REPLY.size
"""Bytes of a LOOKUP's reply before its first plane."""


def reply_bytes(rows: int, columns: int, scales: int) -> int:
    """Bytes of the reply to a LOOKUP of one part: head, values plane, scales plane."""
    return REPLY_HEAD_BYTES + plane_bytes(rows, columns) + plane_bytes(rows, scales)
