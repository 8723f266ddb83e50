"""Messages to bytes and back.  Any bytes give a message or a ContractError that names the field; nothing else is raised.

Encoding checks the same rules as decoding, so a message that we may not send never leaves.
"""

import struct
from collections.abc import Sequence
from typing import TypeVar

from ofl.contract.dspark_v1 import rules
from ofl.contract.dspark_v1.layout import (
    DETAIL_BYTES_MAX,
    GOODBYE,
    HEADER,
    HELLO,
    HELLO_REPLY,
    MAGIC,
    NAME_BYTES,
    PING,
    PING_REPLY,
    REFUSAL,
    STATS_BYTES_MAX,
    STATS_REPLY,
    STEP,
    STEP_ENTRY,
    STEP_REPLY,
    STEP_REPLY_ENTRY,
    VERSION,
    EntryFlag,
    HelloFlag,
    Kind,
    Op,
    Policy,
    RequestStatus,
    RowDtype,
    RowForm,
    Status,
    block_bytes,
)
from ofl.contract.dspark_v1.messages import (
    Envelope,
    Goodbye,
    GoodbyeReply,
    Hello,
    HelloReply,
    Parts,
    Ping,
    PingReply,
    Refused,
    Reply,
    Request,
    Shape,
    Stats,
    StatsReply,
    Step,
    StepEntry,
    StepReply,
    StepReplyEntry,
)
from ofl.contract.records import Buffer, ContractError, Record

_SHAPE_NAMES = tuple(Shape.__dataclass_fields__)
_REQUEST_OPS = {Hello: Op.HELLO, Step: Op.STEP, Ping: Op.PING, Stats: Op.STATS, Goodbye: Op.GOODBYE}
_REPLY_OPS = {
    HelloReply: Op.HELLO, StepReply: Op.STEP, PingReply: Op.PING, StatsReply: Op.STATS, GoodbyeReply: Op.GOODBYE,
}
E_ = TypeVar("E_", Op, Kind, Status, RequestStatus, Policy, RowForm, RowDtype)


def peek(data: Buffer, kind: Kind) -> Envelope:
    """The header alone, checked against the length of the message.  Raises ContractError."""
    head = HEADER.unpack(data)
    if head["magic"] != MAGIC:
        raise ContractError("header.magic", f"0x{head['magic']:08x} where 0x{MAGIC:08x} is needed")
    if head["version"] != VERSION:
        raise ContractError("header.version", f"version {head['version']} where {VERSION} is spoken")
    op = _enum(Op, head["op"], "header.op")
    if _enum(Kind, head["kind"], "header.kind") is not kind:
        raise ContractError("header.kind", f"{head['kind']} where a {kind.name.lower()} is needed")
    status = _enum(Status, head["status"], "header.status")
    if kind is Kind.REQUEST and status is not Status.OK:
        raise ContractError("header.status", f"{status} in a request, where 0 is needed")
    if head["body_bytes"] != len(data) - HEADER.size:
        raise ContractError("header.body_bytes", f"{head['body_bytes']} where {len(data) - HEADER.size} bytes follow")
    return Envelope(op, _int(head["epoch"]), _int(head["round"]), status)


def encode_request(envelope: Envelope, message: Request, shape: Shape | None = None) -> Parts:
    """Scatter-gather parts of a request; rows are passed on without a copy.

    shape: the session's, needed for a STEP.  Raises ContractError when the message breaks a rule.
    """
    _same_op(envelope, _REQUEST_OPS[type(message)])
    parts: list[Buffer] = []
    if isinstance(message, Step):
        rules.check_step(message, _needed(shape))
        parts.append(_pack_step_head(message))
        parts.extend(message.rows)
    elif isinstance(message, Hello):
        rules.check_hello(message)
        own = {"engine_id": message.engine_id, "policy": message.policy}
        parts.append(HELLO.pack(own | _shape_values(message.shape)))
    elif isinstance(message, Ping):
        parts.append(PING.pack({"payload": message.payload}))
    elif isinstance(message, Goodbye):
        parts.append(GOODBYE.pack({"engine_id": _exact(message.engine_id, 16, "goodbye.engine_id")}))
    return _framed(envelope, Kind.REQUEST, parts)


def decode_request(data: Buffer, shape: Shape | None = None) -> tuple[Envelope, Request]:
    """A request and its envelope.  shape: the session's, needed for a STEP; rows are views into data."""
    envelope = peek(data, Kind.REQUEST)
    body = memoryview(data)[HEADER.size :]
    if envelope.op is Op.STEP:
        return envelope, _unpack_step(body, _needed(shape))
    if envelope.op is Op.HELLO:
        values = _whole(HELLO, body)
        hello = Hello(_bytes(values["engine_id"]), _enum(Policy, values["policy"], "hello.policy"), _shape(values, "hello"))
        rules.check_hello(hello)
        return envelope, hello
    if envelope.op is Op.PING:
        return envelope, Ping(_int(_whole(PING, body)["payload"]))
    if envelope.op is Op.GOODBYE:
        return envelope, Goodbye(_bytes(_whole(GOODBYE, body)["engine_id"]))
    _ends(body, 0, "stats")
    return envelope, Stats()


def encode_reply(envelope: Envelope, message: Reply, request: Request | None, shape: Shape | None = None) -> Parts:
    """Scatter-gather parts of the reply to request (None where it could not be decoded: a Refused).

    shape: the session's, needed for a STEP.  Raises ContractError when the reply breaks a rule.
    """
    parts: list[Buffer] = []
    if isinstance(message, Refused):
        if envelope.status is not message.status or message.status is Status.OK:
            raise ContractError("header.status", f"{envelope.status!r} where the refusal says {message.status!r}")
        parts.append(_pack_refusal(message))
        if message.hello is not None:
            parts.append(_pack_hello_reply(message.hello))
        return _framed(envelope, Kind.REPLY, parts)
    if envelope.status is not Status.OK:
        raise ContractError("header.status", f"{envelope.status!r} where only a refusal may follow")
    _same_op(envelope, _REPLY_OPS[type(message)])
    if isinstance(message, StepReply):
        if not isinstance(request, Step):
            raise ContractError("header.op", "a STEP reply without its STEP")
        rules.check_step_reply(message, request, _needed(shape))
        parts.append(_pack_step_reply(message, _needed(shape).block_length))
    elif isinstance(message, HelloReply):
        parts.append(_pack_hello_reply(message))
    elif isinstance(message, PingReply):
        parts.append(PING_REPLY.pack({"payload": message.payload, "boot_nonce": message.boot_nonce}))
    elif isinstance(message, StatsReply):
        text = message.text.encode()
        if len(text) > STATS_BYTES_MAX:
            raise ContractError("stats_reply.text_bytes", f"{len(text)} where {STATS_BYTES_MAX} is the limit")
        parts += [STATS_REPLY.pack({"text_bytes": len(text)}), text]
    return _framed(envelope, Kind.REPLY, parts)


def decode_reply(
    data: Buffer, envelope: Envelope, request: Request, shape: Shape | None = None
) -> Reply:
    """The reply to the request that was sent under envelope; its op, epoch and round must be echoed.

    Raises ContractError on anything that the contract does not allow for that request.
    """
    head = peek(data, Kind.REPLY)
    for name in ("op", "epoch", "round"):
        if (got := getattr(head, name)) != (sent := getattr(envelope, name)):
            raise ContractError(f"header.{name}", f"{int(got)} where the request said {int(sent)}")
    body = memoryview(data)[HEADER.size :]
    if head.status is not Status.OK:
        return _unpack_refusal(head, body)
    if isinstance(request, Step):
        return _unpack_step_reply(body, request, _needed(shape))
    if isinstance(request, Hello):
        return _unpack_hello_reply(body)
    if isinstance(request, Ping):
        values = _whole(PING_REPLY, body)
        if values["payload"] != request.payload:
            raise ContractError("ping_reply.payload", f"{values['payload']} where {request.payload} was sent")
        return PingReply(_int(values["payload"]), _int(values["boot_nonce"]))
    if isinstance(request, Stats):
        size = _int(STATS_REPLY.unpack(body)["text_bytes"])
        _ends(body, STATS_REPLY.size + size, "stats_reply.text_bytes")
        return StatsReply(_text(body[STATS_REPLY.size :], "stats_reply.text"))
    _ends(body, 0, "goodbye_reply")
    return GoodbyeReply()


# --- HELLO -----------------------------------------------------------------------------------------------------------


def _shape_values(shape: Shape) -> dict[str, object]:
    return {name: getattr(shape, name) for name in _SHAPE_NAMES}


def _shape(values: dict[str, object], where: str) -> Shape:
    row_form = _enum(RowForm, values["row_form"], f"{where}.row_form")
    row_dtype = _enum(RowDtype, values["row_dtype"], f"{where}.row_dtype")
    named = {name: values[name] for name in _SHAPE_NAMES} | {"row_form": row_form, "row_dtype": row_dtype}
    return Shape(**named)  # type: ignore[arg-type]  # the record's kinds are the shape's types


def _pack_hello_reply(message: HelloReply) -> bytes:
    name = message.worker_name.encode()
    if len(name) > NAME_BYTES or "\0" in message.worker_name:
        raise ContractError("hello_reply.worker_name", f"{message.worker_name!r} does not fit in {NAME_BYTES} bytes")
    rules.check_shape(message.shape, "hello_reply")
    own = {
        "worker_name": name.ljust(NAME_BYTES, b"\0"), "boot_nonce": message.boot_nonce, "flags": message.flags,
    }
    return HELLO_REPLY.pack(own | _shape_values(message.shape))


def _unpack_hello_reply(body: memoryview) -> HelloReply:
    values = _whole(HELLO_REPLY, body)
    flags = rules.checked_hello_flags(_int(values["flags"]))
    name = _text(_bytes(values["worker_name"]).rstrip(b"\0"), "hello_reply.worker_name")
    if "\0" in name:
        raise ContractError("hello_reply.worker_name", "a zero byte inside the name")
    shape = _shape(values, "hello_reply")
    rules.check_shape(shape, "hello_reply")
    return HelloReply(name, _int(values["boot_nonce"]), HelloFlag(flags), shape)


# --- STEP ------------------------------------------------------------------------------------------------------------


def _pack_step_head(step: Step) -> bytes:
    count = {"entry_count": len(step.entries), "row_count": sum(entry.n_rows for entry in step.entries)}
    return STEP.pack(count) + b"".join(STEP_ENTRY.pack(vars(entry)) for entry in step.entries)


def _unpack_step(body: memoryview, shape: Shape) -> Step:
    head = STEP.unpack(body)
    count, row_count = _int(head["entry_count"]), _int(head["row_count"])
    _ends(body, STEP.size + count * STEP_ENTRY.size + row_count * shape.row_bytes, "step.row_count")
    entries = []
    for index in range(count):
        values = STEP_ENTRY.unpack(body, STEP.size + index * STEP_ENTRY.size)
        values["flags"] = rules.checked_entry_flags(_int(values["flags"]), index)
        entries.append(StepEntry(**values))  # type: ignore[arg-type]  # the record's kinds are the entry's types
    if sum(entry.n_rows for entry in entries) != row_count:
        raise ContractError("step.row_count", f"{row_count} where the entries hold {sum(e.n_rows for e in entries)} rows")
    rows, offset = [], STEP.size + count * STEP_ENTRY.size
    for entry in entries:
        end = offset + entry.n_rows * shape.row_bytes
        rows.append(body[offset:end])
        offset = end
    step = Step(tuple(entries), tuple(rows))
    rules.check_step(step, shape)
    return step


def _pack_step_reply(message: StepReply, block_length: int) -> bytes:
    head = {"entry_count": len(message.entries), "queue_us": message.queue_us, "draft_us": message.draft_us}
    parts = [STEP_REPLY.pack(head)]
    for entry in message.entries:
        parts.append(STEP_REPLY_ENTRY.pack(vars(entry) | {"n_out": entry.n_out}))
        tail = (0,) * (block_length - entry.n_out)
        parts.append(struct.pack(f"<{block_length}i", *entry.drafts, *tail))
        parts.append(struct.pack(f"<{block_length}f", *entry.confidences, *tail))
        parts.append(struct.pack(f"<{block_length}f", *entry.margins, *tail))
    return b"".join(parts)


def _unpack_step_reply(body: memoryview, request: Step, shape: Shape) -> StepReply:
    head = STEP_REPLY.unpack(body)
    count, length = _int(head["entry_count"]), shape.block_length
    _ends(body, STEP_REPLY.size + count * block_bytes(length), "step_reply.entry_count")
    arrays = struct.Struct(f"<{length}i{length}f{length}f")
    entries = []
    for index in range(count):
        offset = STEP_REPLY.size + index * block_bytes(length)
        where = f"step_reply_entry[{index}]"
        values = STEP_REPLY_ENTRY.unpack(body, offset)
        n_out = _int(values.pop("n_out"))
        if n_out > length:
            raise ContractError(f"{where}.n_out", f"{n_out} where the block has {length} positions")
        row = arrays.unpack_from(body, offset + STEP_REPLY_ENTRY.size)
        blocks = {"drafts": row[:length], "confidences": row[length : 2 * length], "margins": row[2 * length :]}
        for name, block in blocks.items():
            if any(value != 0 for value in block[n_out:]):
                raise ContractError(f"{where}.{name}", f"a value behind n_out {n_out} is not zero")
        values["status"] = _enum(RequestStatus, values["status"], f"{where}.status")
        cut = {name: block[:n_out] for name, block in blocks.items()}
        entries.append(StepReplyEntry(**values, **cut))  # type: ignore[arg-type]  # the record's kinds are the types
    reply = StepReply(_int(head["queue_us"]), _int(head["draft_us"]), tuple(entries))
    rules.check_step_reply(reply, request, shape)
    return reply


# --- refusals and framing --------------------------------------------------------------------------------------------


def _pack_refusal(message: Refused) -> bytes:
    try:
        field = message.field.encode("ascii")
    except UnicodeEncodeError:
        raise ContractError("refusal.field", f"{message.field!r} is not ASCII") from None
    detail = message.detail.encode()[:DETAIL_BYTES_MAX].decode(errors="ignore").encode()
    return REFUSAL.pack({"field_bytes": len(field), "detail_bytes": len(detail)}) + field + detail


def _unpack_refusal(head: Envelope, body: memoryview) -> Refused:
    sizes = REFUSAL.unpack(body)
    field_end = REFUSAL.size + _int(sizes["field_bytes"])
    detail_end = field_end + _int(sizes["detail_bytes"])
    if _int(sizes["detail_bytes"]) > DETAIL_BYTES_MAX:
        raise ContractError("refusal.detail_bytes", f"{sizes['detail_bytes']} where {DETAIL_BYTES_MAX} is the limit")
    if len(body) < detail_end:
        raise ContractError("refusal.detail_bytes", f"{len(body)} bytes where {detail_end} are announced")
    field = _text(body[REFUSAL.size : field_end], "refusal.field", "ascii")
    detail = _text(body[field_end:detail_end], "refusal.detail")
    rest = body[detail_end:]
    hello = None
    if head.op is Op.HELLO and head.status is Status.MISMATCH:
        hello = _unpack_hello_reply(rest)
    else:
        _ends(rest, 0, "refusal")
    return Refused(head.op, head.status, field, detail, hello)


def _framed(envelope: Envelope, kind: Kind, parts: Sequence[Buffer]) -> Parts:
    body_bytes = sum(len(part) for part in parts)
    values: dict[str, object] = {
        "magic": MAGIC, "version": VERSION, "op": envelope.op, "kind": kind, "status": envelope.status,
        "epoch": envelope.epoch, "round": envelope.round, "body_bytes": body_bytes,
    }
    return (HEADER.pack(values), *parts)


def _same_op(envelope: Envelope, op: Op) -> None:
    if envelope.op is not op:
        raise ContractError("header.op", f"{envelope.op.name} where the message is {op.name}")


def _needed(shape: Shape | None) -> Shape:
    if shape is None:
        raise ContractError("header.op", "a STEP outside a session")
    return shape


def _whole(record: Record, body: memoryview) -> dict[str, object]:
    values = record.unpack(body)
    _ends(body, record.size, record.name)
    return values


def _ends(body: memoryview, size: int, field: str) -> None:
    if len(body) != size:
        raise ContractError(field, f"{len(body)} bytes where {size} are needed")


def _enum(kind: type[E_], value: object, field: str) -> E_:
    try:
        return kind(value)
    except ValueError:
        raise ContractError(field, f"{value} is none of {', '.join(f'{m.value} {m.name}' for m in kind)}") from None


def _text(data: Buffer, field: str, encoding: str = "utf-8") -> str:
    try:
        return bytes(data).decode(encoding)
    except UnicodeDecodeError as error:
        raise ContractError(field, f"not {encoding}: {error.reason} at byte {error.start}") from None


def _exact(data: bytes, size: int, field: str) -> bytes:
    if len(data) != size:
        raise ContractError(field, f"{len(data)} bytes where {size} are needed")
    return data


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value
