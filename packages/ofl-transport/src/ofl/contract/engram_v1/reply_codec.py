"""Bodies of replies: OPEN's, LOOKUP's planes, STATS, and refusals."""

from ofl.contract.engram_v1.layout import (
    BATCH_ROWS_MAX,
    DETAIL_BYTES_MAX,
    FIELD_BYTES_MAX,
    LOOKUP_REPLY,
    OPEN_REPLY,
    REFUSAL,
    STATS_BYTES_MAX,
    STATS_REPLY,
    Status,
    plane_bytes,
)
from ofl.contract.engram_v1.messages import (
    Envelope,
    Lookup,
    LookupReply,
    Open,
    OpenReply,
    Planes,
    Refused,
    StatsReply,
)
from ofl.contract.fields import encoded, ends, text, whole
from ofl.contract.records import Buffer, ContractError


def pack_open_reply(message: OpenReply, request: Open) -> list[Buffer]:
    """Raises ContractError naming the first field that breaks a rule."""
    _check_open_reply(message, request)
    row = (message.identity, message.boot, message.batch_rows_max, message.calls_max)
    return [OPEN_REPLY.pack_row(*row)]


def unpack_open_reply(body: memoryview, request: Open) -> OpenReply:
    """Raises ContractError naming the first field that breaks a rule."""
    message = OpenReply(**whole(OPEN_REPLY, body))  # type: ignore[arg-type]  # the record's kinds are its types
    _check_open_reply(message, request)
    return message


def pack_lookup_reply(message: LookupReply, request: Lookup, opened: Open) -> list[Buffer]:
    """Planes are passed on without a copy, each with the zeros that follow it."""
    if len(message.parts) != len(request.parts):
        detail = f"{len(message.parts)} parts where {len(request.parts)} were asked for"
        raise ContractError("lookup_reply.planes", detail)
    _check_lookup_reply(message.flags, request.rows, message.checksum, request)
    row = (message.flags, request.rows, message.checksum, message.gather_ns)
    body: list[Buffer] = [LOOKUP_REPLY.pack_row(*row)]
    for asked, planes in zip(request.parts, message.parts, strict=True):
        body += _padded(planes.values, asked.rows * opened.columns)
        body += _padded(planes.scales, asked.rows * opened.scales)
    return body


def unpack_lookup_reply(body: memoryview, request: Lookup, opened: Open) -> LookupReply:
    """Planes are views into body.  Raises ContractError naming the first field that breaks a rule."""
    flags, rows, checksum, gather_ns = LOOKUP_REPLY.row(body)
    _check_lookup_reply(flags, rows, checksum, request)
    widths = (opened.columns, opened.scales)
    size = sum(plane_bytes(part.rows, width) for part in request.parts for width in widths)
    ends(body, LOOKUP_REPLY.size + size, "lookup_reply.planes")
    at, parts = LOOKUP_REPLY.size, []
    for part in request.parts:
        planes = []
        for width in widths:
            end, next_at = at + part.rows * width, at + plane_bytes(part.rows, width)
            if any(body[end:next_at]):
                raise ContractError("lookup_reply.planes", "bytes between planes must be zero")
            planes.append(body[at:end])
            at = next_at
        parts.append(Planes(*planes))
    return LookupReply(tuple(parts), request.flags, checksum, gather_ns)


def pack_stats_reply(message: StatsReply) -> list[Buffer]:
    """Raises ContractError where the text is no UTF-8 or too long."""
    data = encoded(message.text, "stats_reply.text")
    _check_stats_bytes(len(data))
    return [STATS_REPLY.pack_row(len(data)), data]


def unpack_stats_reply(body: memoryview) -> StatsReply:
    """Raises ContractError naming the first field that breaks a rule."""
    (size,) = STATS_REPLY.row(body)
    _check_stats_bytes(size)
    ends(body, STATS_REPLY.size + size, "stats_reply.text_bytes")
    return StatsReply(text(body[STATS_REPLY.size :], "stats_reply.text"))


def pack_refusal(envelope: Envelope, message: Refused) -> list[Buffer]:
    """The clause may quote what the peer sent; it is cut rather than refused, so that a refusal always leaves."""
    if message.status is Status.OK or envelope.status is not message.status:
        detail = f"{envelope.status.name} where the refusal says {message.status.name}"
        raise ContractError("header.status", detail)
    field = encoded(message.field, "refusal.field", "ascii")
    if len(field) > FIELD_BYTES_MAX:
        raise ContractError("refusal.field_bytes", f"{len(field)} where {FIELD_BYTES_MAX} is the limit")
    clause = message.detail.encode(errors="replace")[:DETAIL_BYTES_MAX].decode(errors="ignore").encode()
    return [REFUSAL.pack_row(len(field), len(clause)), field, clause]


def unpack_refusal(head: Envelope, body: memoryview) -> Refused:
    """Raises ContractError naming the first field that breaks a rule."""
    field_bytes, detail_bytes = REFUSAL.row(body)
    if field_bytes > FIELD_BYTES_MAX:
        raise ContractError("refusal.field_bytes", f"{field_bytes} where {FIELD_BYTES_MAX} is the limit")
    if detail_bytes > DETAIL_BYTES_MAX:
        raise ContractError("refusal.detail_bytes", f"{detail_bytes} where {DETAIL_BYTES_MAX} is the limit")
    field_end = REFUSAL.size + field_bytes
    ends(body, field_end + detail_bytes, "refusal")
    field = text(body[REFUSAL.size : field_end], "refusal.field", "ascii")
    return Refused(head.op, head.status, field, text(body[field_end:], "refusal.detail"))


def _check_open_reply(message: OpenReply, request: Open) -> None:
    if message.identity != request.identity:
        raise ContractError("open_reply.identity", "another identity than was asked for, with status OK")
    if not request.batch_rows_max <= message.batch_rows_max <= BATCH_ROWS_MAX:
        detail = f"{message.batch_rows_max} where {request.batch_rows_max} .. {BATCH_ROWS_MAX} are needed"
        raise ContractError("open_reply.batch_rows_max", detail)
    if message.calls_max < 1:
        raise ContractError("open_reply.calls_max", "0 where at least one LOOKUP must be allowed")


def _check_lookup_reply(flags: int, rows: int, checksum: int, request: Lookup) -> None:
    if flags != request.flags:
        raise ContractError("lookup_reply.flags", f"{int(flags)} where {int(request.flags)} was asked for")
    if rows != request.rows:
        raise ContractError("lookup_reply.rows", f"{rows} where {request.rows} were asked for")
    if checksum and not request.flags:
        raise ContractError("lookup_reply.checksum", f"{checksum} where none was asked for")


def _check_stats_bytes(size: int) -> None:
    if size > STATS_BYTES_MAX:
        raise ContractError("stats_reply.text_bytes", f"{size} where {STATS_BYTES_MAX} is the limit")


def _padded(plane: Buffer, size: int) -> list[Buffer]:
    if len(plane) != size:
        raise ContractError("lookup_reply.planes", f"{len(plane)} bytes in a plane of {size}")
    return [plane, bytes(plane_bytes(1, size) - size)]
