"""Messages as a transport sees them: which are STEPs, what they say of whom, and what a reply echoes.

Pure.  A STEP is read with the shape of the HELLO that came before it on its connection.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ofl.contract.dspark_v1 import (
    Envelope,
    Hello,
    Kind,
    Op,
    Refused,
    RequestStatus,
    Shape,
    Status,
    Step,
    decode_reply,
    decode_request,
    peek,
)
from ofl.contract.dspark_v1.layout import HEADER, STEP_REPLY, STEP_REPLY_ENTRY, block_bytes
from ofl.contract.records import Buffer, ContractError

UNKNOWN_STATUS = "unknown"


@dataclass(frozen=True)
class Message:
    """One STEP, its rows as the caller's bytes: they hold only until the message has left.

    entries alone are kept in `step`, so that a message that waits for its reply is small.
    """

    envelope: Envelope
    step: Step
    shape: Shape
    rows: tuple[Buffer, ...]

    @property
    def awaited(self) -> bool:
        """Whether it asks for drafts."""
        return any(entry.needs_draft for entry in self.step.entries)


@dataclass(frozen=True)
class Echo:
    """What a reply says of one entry, whether the contract allows it or not.  drafts, margins: n_out each."""

    slot: int
    status: str
    generation: int
    window_start: int
    drafts: tuple[int, ...]
    margins: tuple[float, ...]


@dataclass(frozen=True)
class Reply:
    """verdict: "" where the contract allows the reply and it is no refusal, else "refused" or "unreadable".

    epoch, round: as echoed, -1 where they cannot be read.  entries: by place in the request, None where not readable.
    """

    verdict: str
    epoch: int
    round: int
    entries: tuple[Echo | None, ...]


class Reader:
    """Of one connection, in the order of its messages."""

    def __init__(self) -> None:
        self.shape: Shape | None = None

    def read(self, parts: Sequence[Buffer]) -> Message | None:
        """The STEP, None where it is none.  Raises ContractError where the contract does not allow what we send."""
        body = b"".join(parts)
        op = peek(body, Kind.REQUEST).op
        if op is Op.HELLO:
            _, hello = decode_request(body)
            assert isinstance(hello, Hello), "its operation says so"
            self.shape = hello.shape
        if op is not Op.STEP:
            return None
        envelope, step = decode_request(body, self.shape)
        assert isinstance(step, Step), "its operation says so"
        assert self.shape is not None, "a STEP decodes with a shape alone"
        return Message(envelope, Step(step.entries, ()), self.shape, step.rows)


def read_reply(message: Message, body: Buffer) -> Reply:
    """What a reply says, and whether the contract allows it."""
    none = (None,) * len(message.step.entries)
    try:
        head = peek(body, Kind.REPLY)
    except ContractError:
        return Reply("unreadable", -1, -1, none)
    try:
        read = decode_reply(body, message.envelope, message.step, message.shape)
        verdict = "refused" if isinstance(read, Refused) else ""
    except ContractError:
        verdict = "unreadable"
    holds_entries = head.op is Op.STEP and head.status is Status.OK
    return Reply(verdict, head.epoch, head.round, _echoes(message, body) if holds_entries else none)


def _echoes(message: Message, body: Buffer) -> tuple[Echo | None, ...]:
    """As far as they are there."""
    count = len(message.step.entries)
    return tuple(_echo(body, entry_offset(message.shape, index), message.shape) for index in range(count))


def entry_offset(shape: Shape, index: int) -> int:
    """Of a reply's entry, in the whole message."""
    return HEADER.size + STEP_REPLY.size + index * block_bytes(shape.block_length)


def _echo(body: Buffer, offset: int, shape: Shape) -> Echo | None:
    length = shape.block_length
    if len(body) < offset + block_bytes(length):
        return None
    try:
        slot, status, generation, window_start, _, n_out = STEP_REPLY_ENTRY.row(body, offset)
    except ContractError:
        return None
    arrays = offset + STEP_REPLY_ENTRY.size
    n_out = min(n_out, length)
    drafts = struct.unpack_from(f"<{n_out}i", body, arrays)
    margins = struct.unpack_from(f"<{n_out}f", body, arrays + 8 * length)
    return Echo(slot, _status(status), generation, window_start, drafts, margins)


def _status(code: int) -> str:
    try:
        return RequestStatus(code).name
    except ValueError:
        return UNKNOWN_STATUS
