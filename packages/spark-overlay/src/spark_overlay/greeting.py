"""What engine and worker say when a connection begins and when it ends: HELLO, its judgement, and GOODBYE.

Owns which answers can never become a session with this configuration.  Knows no thread, no state and no clock: `link`
keeps those, and asks here once an attempt.
"""

import logging
from dataclasses import dataclass

from ofl.contract.dspark_v1 import (
    Envelope,
    Goodbye,
    Hello,
    HelloReply,
    Op,
    Policy,
    Refused,
    Shape,
    Status,
    decode_reply,
    encode_request,
)
from ofl.contract.dspark_v1.rules import first_mismatch
from ofl.errors import TransportError
from ofl.interface import ClientTransport, Peer

from spark_overlay.round.plan import frame_bytes_needed

log = logging.getLogger(__name__)

FINAL_STATUSES = (Status.VERSION, Status.MISMATCH, Status.POLICY)


@dataclass(frozen=True)
class LinkOptions:
    """What to connect to and how patiently.  Times are nanoseconds."""

    endpoint: str
    policy: Policy
    shape: Shape
    engine_id: bytes
    connect_timeout_ns: int
    retry_ns: int
    retry_max_ns: int


@dataclass(frozen=True)
class Session:
    """A connection on which HELLO succeeded."""

    transport: ClientTransport
    epoch: int
    max_frame_bytes: int
    hello: HelloReply
    opened_ns: int


class DisabledError(Exception):
    """This configuration can never work with this worker; the text says what both sides have."""


def frame_bytes(shape: Shape, peer: Peer) -> int:
    """Bytes of the largest message with this peer."""
    return min(shape.max_frame_bytes, peer.max_frame_bytes)


def say_hello(
    transport: ClientTransport, options: LinkOptions, epoch: int, deadline_ns: int
) -> HelloReply | Refused:
    """What the worker answers to HELLO, not judged yet.  deadline_ns: absolute, of CLOCK_MONOTONIC.

    Raises DisabledError where the connection takes no message that a round needs, ContractError, TransportError.
    """
    shape = options.shape
    allowed = frame_bytes(shape, transport.peer)
    needed = frame_bytes_needed(shape.row_bytes, shape.max_slots, shape.block_length)
    if allowed < needed:
        raise DisabledError(f"the connection allows messages of {allowed} bytes, {needed} are needed")
    hello = Hello(options.engine_id, options.policy, shape)
    envelope = Envelope(Op.HELLO, epoch, 0)
    body = transport.call(encode_request(envelope, hello), deadline_ns=deadline_ns)
    reply = decode_reply(body, envelope, hello)
    assert isinstance(reply, HelloReply | Refused)
    return reply


def agreed(shape: Shape, reply: HelloReply | Refused) -> HelloReply:
    """The answer of a worker that serves this shape.

    Raises DisabledError where it never will, and TransportError where it refused and may not the next time.
    """
    if isinstance(reply, Refused):
        refusal = f"the worker refused HELLO with {reply.status.name}: {reply.said}"
        if reply.status in FINAL_STATUSES:
            raise DisabledError(refusal)
        raise TransportError(refusal)
    mismatch = first_mismatch(shape, reply.shape)
    if mismatch is not None:
        raise DisabledError(f"{mismatch[0]}: {mismatch[1]}")
    return reply


def say_goodbye(session: Session, engine_id: bytes, deadline_ns: int) -> None:
    """Tell the worker that the session ends; whatever comes of it, it has ended."""
    parts = encode_request(Envelope(Op.GOODBYE, session.epoch, 0), Goodbye(engine_id))
    try:
        session.transport.call(parts, deadline_ns=deadline_ns)
    except TransportError as error:
        log.debug("GOODBYE was not answered: %s", error)


def shape_text(shape: Shape) -> str:
    """What is compared of a shape, for a log line."""
    digests = f"identity {shape.identity.hex()}, Markov identity {shape.markov_identity.hex()}"
    sizes = f"vocabulary {shape.vocabulary}, {shape.row_elements} elements a row, window {shape.window}"
    return f"{digests}, {sizes}, {shape.block_length} positions, {shape.max_slots} slots"
