"""How an end of the second opinion breaks the document's rules for RDMA on purpose, and the clause that names it."""

from collections.abc import Callable

import pytest
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.rdma_wire import RdmaWire
from rdma.second_opinion.records import FROM_SERVER, Type
from transport_times import scaled

HEARTBEAT = Frame(Type.HEARTBEAT).pack()


def half_a_header(wire: RdmaWire) -> None:
    wire.raw(HEARTBEAT[:12], 0)


def two_frames(wire: RdmaWire) -> None:
    wire.raw(HEARTBEAT * 2, 0)


def a_longer_body(wire: RdmaWire) -> None:
    """Ten bytes are announced, and eleven come in the next segment."""
    data = Frame(Type.CLOSE, body=b"0123456789").pack()
    wire.raw(data[:24], 0)
    wire.raw(data[24:] + b"x", 0)


def no_header(wire: RdmaWire) -> None:
    wire.raw(b"garbage" * 10, 0)


def another_version(wire: RdmaWire) -> None:
    wire.raw(HEARTBEAT[:4] + b"\3" + HEARTBEAT[5:], 0)


def a_frame_over_the_limit(wire: RdmaWire) -> None:
    kind = Type.REQUEST if wire.control.joiner.sender == FROM_SERVER else Type.REPLY
    wire.raw(Frame(kind, 1, bytes((1 << 20) + 1)).pack()[:24], 0)


def receives_that_do_not_exist(wire: RdmaWire) -> None:
    wire.raw(HEARTBEAT, 60_000)


def as_many_receives_as_there_are_numbers(wire: RdmaWire) -> None:
    wire.raw(b"", 0xFFFF_FFFF)


def one_receive_too_many(wire: RdmaWire) -> None:
    wire.credits.tell()
    wire.raw(b"", wire.credits.arrived + 1)


def no_immediate(wire: RdmaWire) -> None:
    wire.raw(HEARTBEAT, None)


def a_byte_on_the_control_socket(wire: RdmaWire) -> None:
    wire.control.send_bytes(b"x")


def a_frame_on_the_control_socket(wire: RdmaWire) -> None:
    wire.control.send_bytes(HEARTBEAT)


def more_segments_than_receives(wire: RdmaWire) -> None:
    """Nothing is returned, so the other end soon cannot return anything either: then its receives are counted."""
    wire.tells = False
    try:
        while True:
            wire.send_segment(HEARTBEAT, patience_s=scaled(0.3))
    except TimeoutError:
        for _ in range(3):  # two are left, for segments without bytes
            wire.raw(HEARTBEAT, 0)


BOTH = [
    (half_a_header, "header"),
    (two_frames, "after the end of its frame"),
    (a_longer_body, "after the end of its frame"),
    (no_header, "magic"),
    (another_version, "header_version"),
    (a_frame_over_the_limit, "body_bytes"),
    (receives_that_do_not_exist, "more credits were returned"),
    (as_many_receives_as_there_are_numbers, "more credits were returned"),
    (one_receive_too_many, "more credits were returned"),
    (no_immediate, "without its credits"),
    (a_byte_on_the_control_socket, "control socket"),
    (a_frame_on_the_control_socket, "control socket"),
    (more_segments_than_receives, "credits"),
]


def named(rows: list[tuple[Callable[..., None], str]]) -> list[object]:
    return [pytest.param(misbehave, clause, id=misbehave.__name__) for misbehave, clause in rows]
