"""Whatever arrives on a connection, the answer is a reply that the contract allows, and the service goes
on."""

import struct

from engine_twin import LIMITS, MOCK, EngineTwin, entry, right_draft, step
from hypothesis import given, settings
from hypothesis import strategies as st
from ofl.contract.dspark_v1 import (
    Envelope,
    Goodbye,
    Hello,
    Kind,
    Op,
    Ping,
    Policy,
    Refused,
    Request,
    Stats,
    Status,
    StepReply,
    encode_request,
    peek,
)
from x86_worker.drafters.base import Draft
from x86_worker.mock import MockDrafter
from x86_worker.session import DrafterService


def fresh() -> tuple[DrafterService, EngineTwin]:
    service = DrafterService(MockDrafter(MOCK), worker_name="w", boot_nonce=1, now_ns=0, limits=LIMITS)
    service.connected(1)
    engine = EngineTwin(service, 1)
    engine.hello()
    return service, engine


def assert_still_serves(engine: EngineTwin) -> None:
    sent = entry(0, 0, 20, reset=True, generation=2**32 - 1)
    reply = engine.step(sent)
    (got,) = reply.entries
    assert Draft(got.drafts, got.confidences, got.margins) == right_draft(sent)


def messages() -> list[bytes]:
    _, engine = fresh()
    shape, engine_id = engine.shape, engine.engine_id
    requests: list[tuple[Op, Request]] = [
        (Op.HELLO, Hello(engine_id, Policy.SHADOW, shape)),
        (Op.STEP, step(entry(0, 0, 5, reset=True), entry(1, 3, 4, reset=True))),
        (Op.STEP, step(entry(0, 5, 1))),
        (Op.PING, Ping(3)),
        (Op.STATS, Stats()),
        (Op.GOODBYE, Goodbye(engine_id)),
    ]
    return [
        b"".join(encode_request(Envelope(op, 1, number), request, shape))
        for number, (op, request) in enumerate(requests)
    ]


MESSAGES = messages()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(MESSAGES)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        if draw(st.booleans()):
            data[at : at + 4] = draw(st.binary(min_size=4, max_size=4))
        else:
            del data[at : at + draw(st.integers(1, 9))]
    if len(data) >= 32 and draw(st.booleans()):
        struct.pack_into("<I", data, 24, len(data) - 32)
    return bytes(data)


@given(st.lists(damaged() | st.binary(max_size=200), min_size=1, max_size=20))
@settings(max_examples=200)
def test_every_answer_is_a_reply_of_the_contract(bodies: list[bytes]) -> None:
    service, engine = fresh()
    for body in bodies:
        reply = engine.send(body)
        head = peek(reply, Kind.REPLY)
        assert (head.status is not Status.OK) == isinstance(engine.answer.reply, Refused)
    service.disconnected(1, "gone")
    service.connected(2)
    again = EngineTwin(service, 2)
    again.epoch = 2**32 - 2  # above whatever a damaged HELLO may have opened elsewhere
    again.hello()
    assert_still_serves(again)


@given(st.binary(max_size=300))
def test_garbage_on_one_connection_leaves_the_other_engine_alone(body: bytes) -> None:
    service, engine = fresh()
    engine.step(entry(3, 0, 20, reset=True))
    service.connected(2)
    EngineTwin(service, 2).send(body)
    service.disconnected(2, "gone")
    sent = entry(3, 20, 1)
    reply = engine.step(sent)
    assert isinstance(reply, StepReply)
    assert reply.entries[0].drafts == right_draft(sent).drafts


def test_a_refusal_is_addressed_as_far_as_the_request_could_be_read() -> None:
    _, engine = fresh()
    ping = bytearray(MESSAGES[3])
    ping[4:6] = (2).to_bytes(2, "little")
    head = peek(engine.send(bytes(ping)), Kind.REPLY)
    assert (head.op, head.status, head.round) == (Op.PING, Status.VERSION, 3)
    head = peek(engine.send(b"GET / HTTP/1.1"), Kind.REPLY)
    assert (head.op, head.status, head.epoch, head.round) == (Op.UNREADABLE, Status.BAD_MESSAGE, 0, 0)
