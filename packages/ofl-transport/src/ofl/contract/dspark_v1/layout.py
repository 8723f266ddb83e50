"""The bytes of `dspark-v1`: every record and code of the drafter service, declared once.

Order on the wire: `HEADER`, then the record of the operation, then what follows it.  Little-endian
throughout, no padding, reserved fields zero.  The semantics are in docs/contract/dspark-v1.md.
"""

from enum import IntEnum, IntFlag

from ofl.contract.records import Field, Record

SERVICE = "dspark"
VERSION = 1
MAGIC = 0x4B505344
"""The bytes 'DSPK'."""

BLOCK_LENGTH_MAX = 64
"""Draft tokens per request and round; the largest any drafter of the families that we know uses is 7."""
SLOTS_MAX = 1024
GENERATION_MAX = 2**32 - 1
TAPS_MAX = 64
FIELD_BYTES_MAX = 128
DETAIL_BYTES_MAX = 512
STATS_BYTES_MAX = 1 << 20
FRAME_BYTES_MIN = 4096
FRAME_BYTES_MAX = 1 << 30
NAME_BYTES = 32
FLOAT32_MAX = (2 - 2**-23) * 2.0**127
"""The largest finite float32."""


class Op(IntEnum):
    """What a message is about.  UNREADABLE: in refusals only, the request's operation could not be read."""

    UNREADABLE = 0
    HELLO = 1
    STEP = 2
    PING = 3
    STATS = 4
    GOODBYE = 5


class Kind(IntEnum):
    """Direction of a message."""

    REQUEST = 0
    REPLY = 1


class Status(IntEnum):
    """Outcome of a whole message; anything but OK carries a REFUSAL record with the field at fault."""

    OK = 0
    BAD_MESSAGE = 1
    VERSION = 2
    MISMATCH = 3
    NO_SESSION = 4
    STALE_EPOCH = 5
    POLICY = 6
    BUSY = 7
    DRAINING = 8
    DRAFTER = 9


class RequestStatus(IntEnum):
    """Outcome of one entry of a STEP."""

    OK = 0
    STALE_GENERATION = 1
    NEEDS_RESET = 2
    GAP = 3
    DRAFTER = 4


class Policy(IntEnum):
    """What the engine does with drafts; the mock worker refuses any but SHADOW and PROBE."""

    CAPACITY = 0
    RESILIENCE = 1
    SHADOW = 2
    PROBE = 3


class RowForm(IntEnum):
    """What a context row holds: the taps as they are, or RMSNorm(fc(taps))."""

    RAW = 0
    PROJECTED = 1


class RowDtype(IntEnum):
    """Element type of a context row."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return 4 if self is RowDtype.FLOAT32 else 2


class EntryFlag(IntFlag):
    """Flags of a STEP entry."""

    NONE = 0
    RESET = 1
    NEED_DRAFT = 2
    PARTIAL_WINDOW = 4


ENTRY_FLAGS_ALL = EntryFlag.RESET | EntryFlag.NEED_DRAFT | EntryFlag.PARTIAL_WINDOW


class HelloFlag(IntFlag):
    """Flags of a HELLO reply."""

    NONE = 0
    CONFIDENCE = 1
    FAKE_DRAFTS = 2


HELLO_FLAGS_ALL = HelloFlag.CONFIDENCE | HelloFlag.FAKE_DRAFTS


HEADER = Record(
    "header",
    Field("magic", "u32", "0x4B505344, the bytes 'DSPK'"),
    Field("version", "u16", "contract version of this message, 1"),
    Field("op", "u8", "operation, Op"),
    Field("kind", "u8", "0 request, 1 reply"),
    Field("status", "u16", "outcome of the whole message; 0 in requests"),
    Field("reserved0", "u16", ""),
    Field("epoch", "u32", "the engine's count of its connections, from 1; 0 outside a session"),
    Field("round", "u64", "the engine's number for this message, echoed by the reply"),
    Field("body_bytes", "u32", "bytes that follow this header"),
    Field("reserved1", "u32", ""),
)

REFUSAL = Record(
    "refusal",
    Field("field_bytes", "u16", "length of the field's name that follows, ASCII, at most 128"),
    Field("detail_bytes", "u16", "length of the clause after it, UTF-8, at most 512"),
    Field("reserved0", "u32", ""),
)

SHAPE_FIELDS = (
    Field("identity", "bytes32", "sha256 that names the drafter; see identity below"),
    Field("markov_identity", "bytes32", "sha256 over the Markov tensors alone"),
    Field("target_binding", "bytes32", "sha256 over what both hosts see of the target; zeros: not compared"),
    Field("vocabulary", "u32", "token ids are 0 .. vocabulary-1, in the target's numbering"),
    Field("row_elements", "u32", "elements of one context row"),
    Field("window", "u32", "context rows that drafting attends to; 0: all of them"),
    Field("max_positions", "u32", "positions are 0 .. max_positions-1"),
    Field("max_frame_bytes", "u32", "largest message either side may send, header included"),
    Field("block_length", "u16", "draft positions of a block, N"),
    Field("max_slots", "u16", "slots are 0 .. max_slots-1"),
    Field("tap_count", "u16", "target layers tapped for a row"),
    Field("row_form", "u8", "0 raw, 1 projected"),
    Field("row_dtype", "u8", "0 float32, 1 bfloat16, 2 float16"),
    Field("reserved0", "u32", ""),
)

HELLO = Record(
    "hello",
    Field("engine_id", "bytes16", "names the engine's life; the session is keyed by it"),
    Field("policy", "u8", "what the engine does with drafts, Policy"),
    Field("reserved1", "bytes7", ""),
    *SHAPE_FIELDS,
)

HELLO_REPLY = Record(
    "hello_reply",
    Field("worker_name", "bytes32", "UTF-8, padded with zeros"),
    Field("boot_nonce", "u64", "random per life of the worker process"),
    Field("flags", "u16", "1 confidences are real, 2 drafts are fake"),
    Field("reserved1", "bytes6", ""),
    *SHAPE_FIELDS,
)

STEP = Record(
    "step",
    Field("entry_count", "u16", "entries that follow, in the order of their rows"),
    Field("reserved0", "u16", ""),
    Field("row_count", "u32", "rows that follow the entries, summed over them"),
)

STEP_ENTRY = Record(
    "step_entry",
    Field("slot", "u16", "slot of the request; a slot appears at most once in a STEP"),
    Field("flags", "u16", "1 RESET, 2 NEED_DRAFT, 4 PARTIAL_WINDOW"),
    Field("generation", "u32", "the slot's generation, from 1"),
    Field("first_position", "u32", "position of the first row; the context is truncated here, then appended"),
    Field("n_rows", "u32", "rows of this entry; the anchor's position is first_position + n_rows"),
    Field("window_start", "u32", "lowest position that the slot's context may hold after the append"),
    Field("anchor", "u32", "token id at the anchor's position; 0 without NEED_DRAFT"),
    Field("n_out", "u16", "draft positions wanted, 1 .. N with NEED_DRAFT, else 0"),
    Field("reserved0", "u16", ""),
    Field("reserved1", "u32", ""),
)

STEP_REPLY = Record(
    "step_reply",
    Field("entry_count", "u16", "entries that follow, as in the request"),
    Field("reserved0", "u16", ""),
    Field("queue_us", "u32", "microseconds between arrival and start"),
    Field("draft_us", "u32", "microseconds that appending and drafting took"),
    Field("reserved1", "u32", ""),
)

STEP_REPLY_ENTRY = Record(
    "step_reply_entry",
    Field("slot", "u16", "as in the request"),
    Field("status", "u16", "outcome of this entry, RequestStatus"),
    Field("generation", "u32", "the worker's generation of the slot after this entry"),
    Field("window_start", "u32", "lowest position that the worker holds"),
    Field("window_end", "u32", "one past the highest position that the worker holds"),
    Field("n_out", "u16", "draft positions that follow with values; the tail up to N is zero"),
    Field("reserved0", "u16", ""),
    Field("reserved1", "u32", ""),
)
"""Followed by N i32 draft ids, N f32 confidences and N f32 margins (draft's logit minus runner-up's)."""

PING = Record("ping", Field("payload", "u64", "any value, echoed"))
PING_REPLY = Record(
    "ping_reply",
    Field("payload", "u64", "the request's value"),
    Field("boot_nonce", "u64", "random per life of the worker process"),
)
STATS_REPLY = Record(
    "stats_reply",
    Field("text_bytes", "u32", "length of the JSON object that follows, UTF-8"),
    Field("reserved0", "u32", ""),
)
GOODBYE = Record("goodbye", Field("engine_id", "bytes16", "the session to drop"))

RECORDS = (
    HEADER,
    REFUSAL,
    HELLO,
    HELLO_REPLY,
    STEP,
    STEP_ENTRY,
    STEP_REPLY,
    STEP_REPLY_ENTRY,
    PING,
    PING_REPLY,
    STATS_REPLY,
    GOODBYE,
)
ENUMS = (Op, Kind, Status, RequestStatus, Policy, RowForm, RowDtype, EntryFlag, HelloFlag)


def block_bytes(block_length: int) -> int:
    """Bytes of one reply entry with its three arrays."""
    return STEP_REPLY_ENTRY.size + 12 * block_length
