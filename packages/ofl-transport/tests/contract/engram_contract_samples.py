"""One sample of every message of `engram-v1`, with values that differ in every field, so that swapped fields show."""

from dataclasses import dataclass, replace

from ofl.contract.engram_v1 import (
    NO_ROW,
    Envelope,
    Lookup,
    LookupFlag,
    LookupPart,
    LookupReply,
    Op,
    Open,
    OpenLayer,
    OpenReply,
    Planes,
    Refused,
    Reply,
    Request,
    Stats,
    StatsReply,
    Status,
    encode_reply,
    encode_request,
    pack_ids,
)

IDENTITY = bytes(range(0x20, 0x40))
OPEN = Open(IDENTITY, 20, 5, 1, 3, 640, (OpenLayer(1, 100, 203), OpenLayer(14, 0, 0xFFFFFFFF)))
"""Rows of 20 values and 5 scales, so that no plane of a few rows ends at a multiple of 64."""
OPEN_REPLY = OpenReply(IDENTITY, 0x0123456789ABCDEF, 131072, 16)
LOOKUP = Lookup(
    (LookupPart(1, pack_ids((7, NO_ROW, 0xFFFFFFFE))), LookupPart(0, pack_ids((202, 100, 100, 100)))),
    LookupFlag.CHECKSUM,
)
"""The second layer first; a row that is not there; an id three times."""
EMPTY = Lookup((LookupPart(0, b""), LookupPart(1, b"")))


def plane(first: int, count: int) -> bytes:
    """Bytes that count up from first."""
    return bytes((first + at) % 256 for at in range(count))


LOOKUP_REPLY = LookupReply(
    (Planes(plane(1, 60), plane(129, 15)), Planes(plane(65, 80), plane(193, 20))),
    LookupFlag.CHECKSUM,
    0x1122334455667788,
    98765,
)


@dataclass(frozen=True)
class EngramSample:
    """A message with all that is needed to encode and to decode it.  message is a Reply where reply is set."""

    name: str
    envelope: Envelope
    request: Request
    reply: Reply | None = None

    @property
    def encoded(self) -> bytes:
        if self.reply is None:
            return b"".join(encode_request(self.envelope, self.request))
        return b"".join(encode_reply(self.envelope, self.reply, self.request, OPEN))


_OPEN, _LOOKUP, _STATS = (
    Envelope(Op.OPEN, 0xA1),
    Envelope(Op.LOOKUP, 0x1122334455667788),
    Envelope(Op.STATS, 10),
)
_BOTH = f"the client has {IDENTITY.hex()}, the server has {bytes(range(32)).hex()}"
_REFUSED_ID = Refused(
    Op.LOOKUP, Status.BAD_ID, "lookup_part[0].ids", "9 at position 2 where layer 1 has rows 0 .. 9"
)
_UNREADABLE = Refused(
    Op.UNREADABLE, Status.BAD_MESSAGE, "header.magic", "0x00000000 where 0x4d524745 is needed"
)

SAMPLES = (
    EngramSample("open", _OPEN, OPEN),
    EngramSample("open_reply", _OPEN, OPEN, OPEN_REPLY),
    EngramSample("lookup", _LOOKUP, LOOKUP),
    EngramSample("lookup_reply", _LOOKUP, LOOKUP, LOOKUP_REPLY),
    EngramSample("lookup_empty", _LOOKUP, EMPTY),
    EngramSample(
        "lookup_empty_reply", _LOOKUP, EMPTY, LookupReply((Planes(b"", b""), Planes(b"", b"")), gather_ns=3)
    ),
    EngramSample("stats", _STATS, Stats()),
    EngramSample("stats_reply", _STATS, Stats(), StatsReply('{"rows": 0, "name": "é"}')),
    EngramSample(
        "refused_identity",
        replace(_OPEN, status=Status.IDENTITY),
        OPEN,
        Refused(Op.OPEN, Status.IDENTITY, "open.identity", _BOTH),
    ),
    EngramSample("refused_id", replace(_LOOKUP, status=Status.BAD_ID), LOOKUP, _REFUSED_ID),
    EngramSample("refused_unreadable", Envelope(Op.UNREADABLE, 0, Status.BAD_MESSAGE), LOOKUP, _UNREADABLE),
)
BY_NAME = {sample.name: sample for sample in SAMPLES}


def sent_envelope(sample: EngramSample) -> Envelope:
    """The envelope of the request that a sample's reply answers."""
    if sample.envelope.op is Op.UNREADABLE:
        return _LOOKUP
    return Envelope(sample.envelope.op, sample.envelope.batch)
