"""Messages to bytes and back.

Any bytes give a message or a ContractError that names the field; nothing else is raised.  Encoding checks the same
rules as decoding, so a message that we may not send never leaves.  Accepted bytes encode to themselves.
"""

from ofl.contract.engram_v1.framing import check_envelope, framed, peek
from ofl.contract.engram_v1.layout import HEADER, Kind, Op, Status
from ofl.contract.engram_v1.messages import (
    Envelope,
    Lookup,
    LookupReply,
    Open,
    OpenReply,
    Parts,
    Refused,
    Reply,
    Request,
    Stats,
    StatsReply,
)
from ofl.contract.engram_v1.reply_codec import (
    pack_lookup_reply,
    pack_open_reply,
    pack_refusal,
    pack_stats_reply,
    unpack_lookup_reply,
    unpack_open_reply,
    unpack_refusal,
    unpack_stats_reply,
)
from ofl.contract.engram_v1.request_codec import pack_lookup, pack_open, unpack_lookup, unpack_open
from ofl.contract.fields import ends
from ofl.contract.records import Buffer, ContractError

_OPS = {Open: Op.OPEN, Lookup: Op.LOOKUP, Stats: Op.STATS}


def encode_request(envelope: Envelope, message: Request) -> Parts:
    """Scatter-gather parts of a request; ids are passed on without a copy.  Raises ContractError."""
    _same_op(envelope, _OPS[type(message)])
    check_envelope(envelope, Kind.REQUEST)
    if isinstance(message, Open):
        return framed(envelope, Kind.REQUEST, pack_open(message))
    if isinstance(message, Lookup):
        return framed(envelope, Kind.REQUEST, pack_lookup(message))
    return framed(envelope, Kind.REQUEST, [])


def decode_request(data: Buffer) -> tuple[Envelope, Request]:
    """A request and its envelope; ids are views into data.  Raises ContractError."""
    envelope = peek(data, Kind.REQUEST)
    body = memoryview(data)[HEADER.size :]
    if envelope.op is Op.OPEN:
        return envelope, unpack_open(body)
    if envelope.op is Op.LOOKUP:
        return envelope, unpack_lookup(body)
    ends(body, 0, "stats")
    return envelope, Stats()


def encode_reply(
    envelope: Envelope, message: Reply, request: Request | None, opened: Open | None = None
) -> Parts:
    """Scatter-gather parts of the reply to request (None where it could not be decoded: a Refused).

    opened: the connection's OPEN, needed for a LOOKUP's reply.  Raises ContractError when the reply breaks a rule.
    """
    check_envelope(envelope, Kind.REPLY)
    if isinstance(message, Refused):
        _same_op(envelope, message.op)
        return framed(envelope, Kind.REPLY, pack_refusal(envelope, message))
    if envelope.status is not Status.OK:
        raise ContractError("header.status", f"{envelope.status.name} where only a refusal may follow")
    if request is None:
        raise ContractError("header.op", "a reply without its request can only be a refusal")
    _same_op(envelope, _OPS[type(request)])
    return framed(envelope, Kind.REPLY, _pack_reply(message, request, opened))


def decode_reply(data: Buffer, envelope: Envelope, request: Request, opened: Open | None = None) -> Reply:
    """The reply to the request that was sent under envelope; it must echo op and batch.  Planes are views into data.

    opened: the connection's OPEN, needed for a LOOKUP.  The checksum of a LOOKUP's reply is handed out, not compared.
    Raises ContractError on anything that the contract does not allow for that request.
    """
    head = peek(data, Kind.REPLY)
    body = memoryview(data)[HEADER.size :]
    if head.op is Op.UNREADABLE:
        # Our header did not arrive as sent, so there is nothing to echo; the transport matched the call.
        return unpack_refusal(head, body)
    for name in ("op", "batch"):
        if (got := getattr(head, name)) != (sent := getattr(envelope, name)):
            raise ContractError(f"header.{name}", f"{int(got)} where the request said {int(sent)}")
    if head.status is not Status.OK:
        return unpack_refusal(head, body)
    if isinstance(request, Open):
        return unpack_open_reply(body, request)
    if isinstance(request, Lookup):
        return unpack_lookup_reply(body, request, _needed(opened))
    return unpack_stats_reply(body)


def _pack_reply(message: Reply, request: Request, opened: Open | None) -> list[Buffer]:
    if isinstance(message, OpenReply) and isinstance(request, Open):
        return pack_open_reply(message, request)
    if isinstance(message, LookupReply) and isinstance(request, Lookup):
        return pack_lookup_reply(message, request, _needed(opened))
    if isinstance(message, StatsReply) and isinstance(request, Stats):
        return pack_stats_reply(message)
    raise ContractError("header.op", f"{type(message).__name__} answers no {type(request).__name__}")


def _same_op(envelope: Envelope, op: Op) -> None:
    if envelope.op is not op:
        raise ContractError("header.op", f"{envelope.op.name} where the message is {op.name}")


def _needed(opened: Open | None) -> Open:
    if opened is None:
        raise ContractError("header.op", "a LOOKUP before an OPEN")
    return opened
