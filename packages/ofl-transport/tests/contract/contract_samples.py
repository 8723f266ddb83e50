"""One sample of every message, with values that differ in every field, so that swapped fields show."""

import struct
from dataclasses import dataclass, replace

from ofl.contract.dspark_v1 import (
    EntryFlag,
    Envelope,
    Goodbye,
    GoodbyeReply,
    Hello,
    HelloFlag,
    HelloReply,
    Op,
    Ping,
    PingReply,
    Policy,
    Refused,
    Reply,
    Request,
    RequestStatus,
    RowDtype,
    RowForm,
    Shape,
    Stats,
    StatsReply,
    Status,
    Step,
    StepEntry,
    StepReply,
    StepReplyEntry,
    encode_reply,
    encode_request,
)
from ofl.contract.identity import UNSTATED

ENGINE_ID = bytes(range(1, 17))

SHAPE = Shape(
    identity=bytes(range(0x20, 0x40)),
    markov_identity=bytes(range(0x40, 0x60)),
    target_binding=bytes(range(0x60, 0x80)),
    vocabulary=1000,
    row_elements=3,
    window=4,
    max_positions=64,
    max_frame_bytes=8192,
    block_length=2,
    max_slots=5,
    tap_count=3,
    row_form=RowForm.RAW,
    row_dtype=RowDtype.BFLOAT16,
)
"""A session of rows of 6 bytes, a window of 4 rows and blocks of 2 positions."""

HELLO_REPLY = HelloReply("worker-é", 0x0123456789ABCDEF, HelloFlag.CONFIDENCE, SHAPE)


def rows(first: int, count: int) -> bytes:
    """Rows of SHAPE from position first on; row p holds the 16-bit numbers 256 p, 256 p + 1, 256 p + 2."""
    numbers = [256 * p + column for p in range(first, first + count) for column in range(3)]
    return struct.pack(f"<{len(numbers)}H", *numbers)


STEP = Step(
    (
        StepEntry(2, EntryFlag.RESET | EntryFlag.NEED_DRAFT | EntryFlag.PARTIAL_WINDOW, 7, 10, 3, 10, 901, 2),
        StepEntry(4, EntryFlag.NEED_DRAFT, 1, 9, 1, 6, 5, 1),
        StepEntry(0, EntryFlag.NONE, 3, 0, 2, 0, 0, 0),
    ),
    (rows(10, 3), rows(9, 1), rows(0, 2)),
)
"""A reset with a partial window, a round with a whole one, and a part of a prefill that wants no drafts."""

STEP_REPLY = StepReply(
    21,
    450,
    (
        StepReplyEntry(2, RequestStatus.OK, 7, 10, 13, (17, 999), (0.5, 0.25), (1.5, 0.0)),
        StepReplyEntry(4, RequestStatus.GAP, 1, 3, 8, (), (), ()),
        StepReplyEntry(0, RequestStatus.OK, 3, 0, 2, (), (), ()),
    ),
)


@dataclass(frozen=True)
class Sample:
    """A message with all that is needed to encode and to decode it.  message is a Reply where reply is
    set."""

    name: str
    envelope: Envelope
    request: Request
    reply: Reply | None = None

    @property
    def encoded(self) -> bytes:
        if self.reply is None:
            return b"".join(encode_request(self.envelope, self.request, SHAPE))
        return b"".join(encode_reply(self.envelope, self.reply, self.request, SHAPE))


def _refused(op: Op, status: Status, field: str, detail: str, hello: HelloReply | None = None) -> Refused:
    return Refused(op, status, field, detail, hello)


_HELLO = Hello(ENGINE_ID, Policy.SHADOW, SHAPE)
_STEP_ENVELOPE = Envelope(Op.STEP, 3, 0x1122334455667788)
_PING, _STATS, _BYE = Envelope(Op.PING, 0, 9), Envelope(Op.STATS, 0, 10), Envelope(Op.GOODBYE, 3, 11)
_HELLO_ENVELOPE = Envelope(Op.HELLO, 3, 1)
_UNSTATED = replace(SHAPE, target_binding=UNSTATED, row_form=RowForm.PROJECTED, row_dtype=RowDtype.FLOAT32)

SAMPLES = (
    Sample("hello", _HELLO_ENVELOPE, _HELLO),
    Sample("hello_unstated_binding", _HELLO_ENVELOPE, Hello(ENGINE_ID, Policy.CAPACITY, _UNSTATED)),
    Sample("hello_reply", _HELLO_ENVELOPE, _HELLO, HELLO_REPLY),
    Sample("step", _STEP_ENVELOPE, STEP),
    Sample("step_reply", _STEP_ENVELOPE, STEP, STEP_REPLY),
    Sample("ping", _PING, Ping(0x0807060504030201)),
    Sample("ping_reply", _PING, Ping(0x0807060504030201), PingReply(0x0807060504030201, 0x1112131415161718)),
    Sample("stats", _STATS, Stats()),
    Sample("stats_reply", _STATS, Stats(), StatsReply('{"sessions": 0, "name": "é"}')),
    Sample("goodbye", _BYE, Goodbye(ENGINE_ID)),
    Sample("goodbye_reply", _BYE, Goodbye(ENGINE_ID), GoodbyeReply()),
    Sample(
        "refused_mismatch",
        replace(_HELLO_ENVELOPE, status=Status.MISMATCH),
        _HELLO,
        _refused(
            Op.HELLO, Status.MISMATCH, "hello.window", "the engine has 4, the worker has 8", HELLO_REPLY
        ),
    ),
    Sample(
        "refused_no_session",
        replace(_STEP_ENVELOPE, status=Status.NO_SESSION),
        STEP,
        _refused(Op.STEP, Status.NO_SESSION, "header.epoch", "no session on this connection"),
    ),
    Sample(
        "refused_unreadable",
        Envelope(Op.UNREADABLE, 0, 0, Status.BAD_MESSAGE),
        STEP,
        _refused(Op.UNREADABLE, Status.BAD_MESSAGE, "header.magic", "0x00000000 where 0x4b505344 is needed"),
    ),
)
BY_NAME = {sample.name: sample for sample in SAMPLES}


def sent_envelope(sample: Sample) -> Envelope:
    """The envelope of the request that a sample's reply answers."""
    op = sample.envelope.op
    if op is Op.UNREADABLE:
        return _STEP_ENVELOPE
    return Envelope(op, sample.envelope.epoch, sample.envelope.round)
