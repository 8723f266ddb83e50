"""The header that every message begins with.

Owns the first 32 bytes of a message, which stay as they are in every version of the contract.
"""

from collections.abc import Sequence

from ofl.contract.dspark_v1.layout import HEADER, MAGIC, VERSION, Kind, Op, Status
from ofl.contract.dspark_v1.messages import Envelope, Parts
from ofl.contract.fields import code
from ofl.contract.records import Buffer, ContractError

_SESSION_OPS = (Op.HELLO, Op.STEP, Op.GOODBYE)


def peek(data: Buffer, kind: Kind) -> Envelope:
    """The header alone, checked against the length of the message.  Raises ContractError."""
    magic, version, op_code, kind_code, status_code, epoch, round_, body_bytes = HEADER.row(data)
    if magic != MAGIC:
        raise ContractError("header.magic", f"0x{magic:08x} where 0x{MAGIC:08x} is needed")
    if version != VERSION:
        raise ContractError("header.version", f"version {version} where {VERSION} is spoken")
    if kind_code != kind:
        raise ContractError("header.kind", f"{kind_code} where {kind.value} {kind.name} is needed")
    envelope = Envelope(
        code(Op, op_code, "header.op"), epoch, round_, code(Status, status_code, "header.status")
    )
    check_envelope(envelope, kind)
    if body_bytes != len(data) - HEADER.size:
        raise ContractError("header.body_bytes", f"{body_bytes} where {len(data) - HEADER.size} bytes follow")
    return envelope


def salvage(data: Buffer) -> Envelope:
    """What can be read of a request that was refused, to address the refusal; never raises.

    Op UNREADABLE, epoch 0 and round 0 stand for what cannot be read.
    """
    try:
        magic, _, op, kind, _, epoch, round_, _ = HEADER.row(data)
    except ContractError:
        return Envelope(Op.UNREADABLE, 0, 0)
    if magic != MAGIC or kind != Kind.REQUEST:
        return Envelope(Op.UNREADABLE, 0, 0)
    known = op in Op._value2member_map_
    return Envelope(Op(op) if known else Op.UNREADABLE, epoch, round_)


def check_envelope(envelope: Envelope, kind: Kind) -> None:
    """Raises ContractError naming the header field that this kind of message cannot have."""
    op, status = envelope.op, envelope.status
    if kind is Kind.REQUEST:
        if status is not Status.OK:
            raise ContractError("header.status", f"{status.value} in a request, where 0 is needed")
        if op is Op.UNREADABLE:
            raise ContractError("header.op", "0 is no operation")
        if envelope.epoch == 0 and op in _SESSION_OPS:
            raise ContractError("header.epoch", f"0 in a {op.name}, where epochs count from 1")
    elif op is Op.UNREADABLE and status not in (Status.BAD_MESSAGE, Status.VERSION):
        raise ContractError("header.op", f"0 with status {status.name}")


def framed(envelope: Envelope, kind: Kind, parts: Sequence[Buffer], frame_bytes_max: int | None) -> Parts:
    """The message with its header in front.  Raises ContractError when it is longer than the session
    allows."""
    body_bytes = sum(map(len, parts))
    if frame_bytes_max is not None:
        check_frame(body_bytes, frame_bytes_max)
    head = HEADER.pack_row(
        MAGIC, VERSION, envelope.op, kind, envelope.status, envelope.epoch, envelope.round, body_bytes
    )
    return (head, *parts)


def check_frame(body_bytes: int, frame_bytes_max: int) -> None:
    """Raises ContractError when a message is longer than the session's max_frame_bytes."""
    if HEADER.size + body_bytes > frame_bytes_max:
        detail = f"{HEADER.size} + {body_bytes} where max_frame_bytes is {frame_bytes_max}"
        raise ContractError("header.body_bytes", detail)
