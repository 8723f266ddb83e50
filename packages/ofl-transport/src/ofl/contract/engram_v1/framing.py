"""The header that every message begins with; its 32 bytes stay as they are in every version of the contract."""

from collections.abc import Sequence

from ofl.contract.engram_v1.layout import HEADER, MAGIC, VERSION, Kind, Op, Status
from ofl.contract.engram_v1.messages import Envelope, Parts
from ofl.contract.fields import code
from ofl.contract.records import Buffer, ContractError


def peek(data: Buffer, kind: Kind) -> Envelope:
    """The header alone, checked against the length of the message.  Raises ContractError."""
    magic, version, op_code, kind_code, status_code, batch, body_bytes = HEADER.row(data)
    if magic != MAGIC:
        raise ContractError("header.magic", f"0x{magic:08x} where 0x{MAGIC:08x} is needed")
    if version != VERSION:
        raise ContractError("header.version", f"version {version} where {VERSION} is spoken")
    if kind_code != kind:
        raise ContractError("header.kind", f"{kind_code} where {kind.value} {kind.name} is needed")
    envelope = Envelope(code(Op, op_code, "header.op"), batch, code(Status, status_code, "header.status"))
    check_envelope(envelope, kind)
    if body_bytes != len(data) - HEADER.size:
        raise ContractError("header.body_bytes", f"{body_bytes} where {len(data) - HEADER.size} bytes follow")
    return envelope


def salvage(data: Buffer) -> Envelope:
    """What can be read of a request that was refused, to address the refusal; never raises.

    Op UNREADABLE and batch 0 stand for what cannot be read.
    """
    try:
        magic, _, op, kind, _, batch, _ = HEADER.row(data)
    except ContractError:
        return Envelope(Op.UNREADABLE, 0)
    if magic != MAGIC or kind != Kind.REQUEST:
        return Envelope(Op.UNREADABLE, 0)
    known = op in Op._value2member_map_
    return Envelope(Op(op) if known else Op.UNREADABLE, batch)


def check_envelope(envelope: Envelope, kind: Kind) -> None:
    """Raises ContractError naming the header field that this kind of message cannot have."""
    op, status = envelope.op, envelope.status
    if kind is Kind.REQUEST:
        if op is Op.UNREADABLE:
            raise ContractError("header.op", "0 is no operation")
        if status is not Status.OK:
            raise ContractError("header.status", f"{status.value} in a request, where 0 is needed")
    elif op is Op.UNREADABLE and status not in (Status.BAD_MESSAGE, Status.VERSION):
        raise ContractError("header.op", f"0 with status {status.name}")


def framed(envelope: Envelope, kind: Kind, parts: Sequence[Buffer]) -> Parts:
    """The message with its header in front.  Raises ContractError when its length does not fit."""
    body_bytes = sum(map(len, parts))
    head = HEADER.pack_row(MAGIC, VERSION, envelope.op, kind, envelope.status, envelope.batch, body_bytes)
    return (head, *parts)
