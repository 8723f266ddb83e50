"""Messages to bytes and back.

Any bytes give a message or a ContractError that names the field; nothing else is raised.  Encoding checks the
same rules as decoding, so a message that we may not send never leaves.  Accepted bytes encode to themselves.
"""

from ofl.contract.dspark_v1 import rules
from ofl.contract.dspark_v1.framing import check_envelope, framed, peek, salvage
from ofl.contract.dspark_v1.layout import (
    DETAIL_BYTES_MAX,
    FIELD_BYTES_MAX,
    GOODBYE,
    HEADER,
    HELLO,
    HELLO_REPLY,
    NAME_BYTES,
    PING,
    PING_REPLY,
    REFUSAL,
    STATS_REPLY,
    Kind,
    Op,
    Policy,
    RowDtype,
    RowForm,
    Status,
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
    StepReply,
)
from ofl.contract.dspark_v1.step_codec import pack_step, pack_step_reply, unpack_step, unpack_step_reply
from ofl.contract.fields import code, encoded, ends, text, whole
from ofl.contract.records import Buffer, ContractError

__all__ = ["decode_reply", "decode_request", "encode_reply", "encode_request", "peek", "salvage"]

_SHAPE_NAMES = tuple(Shape.__dataclass_fields__)
_REQUEST_OPS = {Hello: Op.HELLO, Step: Op.STEP, Ping: Op.PING, Stats: Op.STATS, Goodbye: Op.GOODBYE}
_REPLY_OPS = {
    HelloReply: Op.HELLO,
    StepReply: Op.STEP,
    PingReply: Op.PING,
    StatsReply: Op.STATS,
    GoodbyeReply: Op.GOODBYE,
}


def encode_request(envelope: Envelope, message: Request, shape: Shape | None = None) -> Parts:
    """Scatter-gather parts of a request; rows are passed on without a copy.

    shape: the session's, needed for a STEP.  Raises ContractError when the message breaks a rule.
    """
    _same_op(envelope, _REQUEST_OPS[type(message)])
    check_envelope(envelope, Kind.REQUEST)
    if isinstance(message, Step):
        session = _needed(shape)
        return framed(envelope, Kind.REQUEST, pack_step(message, session), session.max_frame_bytes)
    return framed(envelope, Kind.REQUEST, _pack_rare_request(message), None)


def decode_request(data: Buffer, shape: Shape | None = None) -> tuple[Envelope, Request]:
    """A request and its envelope.  shape: the session's, needed for a STEP; rows are views into data."""
    envelope = peek(data, Kind.REQUEST)
    body = memoryview(data)[HEADER.size :]
    if envelope.op is Op.STEP:
        return envelope, unpack_step(body, _needed(shape))
    return envelope, _unpack_rare_request(envelope.op, body)


def encode_reply(
    envelope: Envelope, message: Reply, request: Request | None, shape: Shape | None = None
) -> Parts:
    """Scatter-gather parts of the reply to request (None where it could not be decoded: a Refused).

    shape: the session's, needed for a STEP.  Raises ContractError when the reply breaks a rule.
    """
    check_envelope(envelope, Kind.REPLY)
    if isinstance(message, Refused):
        return framed(envelope, Kind.REPLY, _pack_refusal(envelope, message), None)
    if envelope.status is not Status.OK:
        raise ContractError("header.status", f"{envelope.status.name} where only a refusal may follow")
    _same_op(envelope, _REPLY_OPS[type(message)])
    if isinstance(message, StepReply):
        if not isinstance(request, Step):
            raise ContractError("header.op", "a STEP reply without its STEP")
        session = _needed(shape)
        body = pack_step_reply(message, request, session)
        return framed(envelope, Kind.REPLY, [body], session.max_frame_bytes)
    return framed(envelope, Kind.REPLY, _pack_rare_reply(message), None)


def decode_reply(data: Buffer, envelope: Envelope, request: Request, shape: Shape | None = None) -> Reply:
    """The reply to the request that was sent under envelope; its op, epoch and round must be echoed.

    Raises ContractError on anything that the contract does not allow for that request.
    """
    head = peek(data, Kind.REPLY)
    body = memoryview(data)[HEADER.size :]
    if head.op is Op.UNREADABLE:
        # Our header did not arrive as sent, so there is nothing to echo; the transport matched the call.
        return _unpack_refusal(head, body)
    for name in ("op", "epoch", "round"):
        if (got := getattr(head, name)) != (sent := getattr(envelope, name)):
            raise ContractError(f"header.{name}", f"{int(got)} where the request said {int(sent)}")
    if head.status is not Status.OK:
        return _unpack_refusal(head, body)
    if isinstance(request, Step):
        return unpack_step_reply(body, request, _needed(shape))
    return _unpack_rare_reply(request, body)


# --- requests but STEP -----------------------------------------------------------------------------------


def _pack_rare_request(message: Hello | Ping | Stats | Goodbye) -> list[Buffer]:
    if isinstance(message, Hello):
        rules.check_hello(message)
        own = {"engine_id": message.engine_id, "policy": message.policy}
        return [HELLO.pack(own | _shape_values(message.shape))]
    if isinstance(message, Ping):
        return [PING.pack_row(message.payload)]
    if isinstance(message, Goodbye):
        rules.check_engine_id(message.engine_id, "goodbye")
        return [GOODBYE.pack_row(message.engine_id)]
    return []


def _unpack_rare_request(op: Op, body: memoryview) -> Hello | Ping | Stats | Goodbye:
    if op is Op.HELLO:
        values = whole(HELLO, body)
        policy = code(Policy, values["policy"], "hello.policy")
        hello = Hello(_bytes(values["engine_id"]), policy, _shape(values, "hello"))
        rules.check_hello(hello)
        return hello
    if op is Op.PING:
        return Ping(_int(whole(PING, body)["payload"]))
    if op is Op.GOODBYE:
        engine_id = _bytes(whole(GOODBYE, body)["engine_id"])
        rules.check_engine_id(engine_id, "goodbye")
        return Goodbye(engine_id)
    ends(body, 0, "stats")
    return Stats()


# --- replies but STEP's ----------------------------------------------------------------------------------


def _pack_rare_reply(message: HelloReply | PingReply | StatsReply | GoodbyeReply) -> list[Buffer]:
    if isinstance(message, HelloReply):
        return [_pack_hello_reply(message)]
    if isinstance(message, PingReply):
        return [PING_REPLY.pack_row(message.payload, message.boot_nonce)]
    if isinstance(message, StatsReply):
        data = encoded(message.text, "stats_reply.text")
        rules.check_stats_bytes(len(data))
        return [STATS_REPLY.pack_row(len(data)), data]
    return []


def _unpack_rare_reply(
    request: Hello | Ping | Stats | Goodbye, body: memoryview
) -> HelloReply | PingReply | StatsReply | GoodbyeReply:
    if isinstance(request, Hello):
        return _unpack_hello_reply(body)
    if isinstance(request, Ping):
        payload, boot_nonce = whole(PING_REPLY, body).values()
        if payload != request.payload:
            raise ContractError("ping_reply.payload", f"{payload} where {request.payload} was sent")
        return PingReply(request.payload, _int(boot_nonce))
    if isinstance(request, Stats):
        (size,) = STATS_REPLY.row(body)
        rules.check_stats_bytes(size)
        ends(body, STATS_REPLY.size + size, "stats_reply.text_bytes")
        return StatsReply(text(body[STATS_REPLY.size :], "stats_reply.text"))
    ends(body, 0, "goodbye_reply")
    return GoodbyeReply()


def _pack_hello_reply(message: HelloReply) -> bytes:
    name = encoded(message.worker_name, "hello_reply.worker_name")
    if len(name) > NAME_BYTES or b"\0" in name:
        detail = f"{message.worker_name!r} does not fit in {NAME_BYTES} bytes without zeros"
        raise ContractError("hello_reply.worker_name", detail)
    rules.checked_hello_flags(message.flags)
    rules.check_shape(message.shape, "hello_reply")
    own = {
        "worker_name": name.ljust(NAME_BYTES, b"\0"),
        "boot_nonce": message.boot_nonce,
        "flags": message.flags,
    }
    return HELLO_REPLY.pack(own | _shape_values(message.shape))


def _unpack_hello_reply(body: memoryview) -> HelloReply:
    values = whole(HELLO_REPLY, body)
    flags = rules.checked_hello_flags(_int(values["flags"]))
    name = text(_bytes(values["worker_name"]).rstrip(b"\0"), "hello_reply.worker_name")
    if "\0" in name:
        raise ContractError("hello_reply.worker_name", "a zero byte inside the name")
    shape = _shape(values, "hello_reply")
    rules.check_shape(shape, "hello_reply")
    return HelloReply(name, _int(values["boot_nonce"]), flags, shape)


# --- refusals --------------------------------------------------------------------------------------------


def _pack_refusal(envelope: Envelope, message: Refused) -> list[Buffer]:
    if message.status is Status.OK or envelope.status is not message.status:
        detail = f"{envelope.status.name} where the refusal says {message.status.name}"
        raise ContractError("header.status", detail)
    _same_op(envelope, message.op)
    field = encoded(message.field, "refusal.field", "ascii")
    if len(field) > FIELD_BYTES_MAX:
        raise ContractError("refusal.field_bytes", f"{len(field)} where {FIELD_BYTES_MAX} is the limit")
    # The clause may quote what the peer sent; it is cut rather than refused, so that a refusal always leaves.
    detail_bytes = message.detail.encode(errors="replace")[:DETAIL_BYTES_MAX].decode(errors="ignore").encode()
    parts: list[Buffer] = [REFUSAL.pack_row(len(field), len(detail_bytes)), field, detail_bytes]
    if (message.hello is not None) != _carries_hello(envelope):
        raise ContractError(
            "refusal", "the worker's shape goes with a HELLO's MISMATCH, and with nothing else"
        )
    if message.hello is not None:
        parts.append(_pack_hello_reply(message.hello))
    return parts


def _unpack_refusal(head: Envelope, body: memoryview) -> Refused:
    field_bytes, detail_bytes = REFUSAL.row(body)
    if field_bytes > FIELD_BYTES_MAX:
        raise ContractError("refusal.field_bytes", f"{field_bytes} where {FIELD_BYTES_MAX} is the limit")
    if detail_bytes > DETAIL_BYTES_MAX:
        raise ContractError("refusal.detail_bytes", f"{detail_bytes} where {DETAIL_BYTES_MAX} is the limit")
    field_end = REFUSAL.size + field_bytes
    detail_end = field_end + detail_bytes
    if len(body) < detail_end:
        raise ContractError("refusal.detail_bytes", f"{len(body)} bytes where {detail_end} are announced")
    field = text(body[REFUSAL.size : field_end], "refusal.field", "ascii")
    detail = text(body[field_end:detail_end], "refusal.detail")
    hello = None
    if _carries_hello(head):
        hello = _unpack_hello_reply(body[detail_end:])
    else:
        ends(body, detail_end, "refusal")
    return Refused(head.op, head.status, field, detail, hello)


def _carries_hello(envelope: Envelope) -> bool:
    return envelope.op is Op.HELLO and envelope.status is Status.MISMATCH


# --- helpers ---------------------------------------------------------------------------------------------


def _shape_values(shape: Shape) -> dict[str, object]:
    return {name: getattr(shape, name) for name in _SHAPE_NAMES}


def _shape(values: dict[str, object], where: str) -> Shape:
    row_form = code(RowForm, values["row_form"], f"{where}.row_form")
    row_dtype = code(RowDtype, values["row_dtype"], f"{where}.row_dtype")
    named = {name: values[name] for name in _SHAPE_NAMES} | {"row_form": row_form, "row_dtype": row_dtype}
    return Shape(**named)  # type: ignore[arg-type]  # the record's kinds are the shape's types


def _same_op(envelope: Envelope, op: Op) -> None:
    if envelope.op is not op:
        raise ContractError("header.op", f"{envelope.op.name} where the message is {op.name}")


def _needed(shape: Shape | None) -> Shape:
    if shape is None:
        raise ContractError("header.op", "a STEP outside a session")
    return shape


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value
