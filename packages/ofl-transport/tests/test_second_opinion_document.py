"""The second opinion itself: it has the document's layout, and finds what the document excludes.

Only so does a test that it passes say something about the document.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rdma.second_opinion import records
from rdma.second_opinion.credits import Credits
from rdma.second_opinion.frames import Frame, FrameJoiner
from rdma.second_opinion.negotiation import Wishes
from rdma.second_opinion.records import FROM_CLIENT, FROM_SERVER, Transport, Type, WireFaultError

DOCUMENTS = Path(__file__).parents[3] / "docs" / "transport"
WIRE = (DOCUMENTS / "wire.md").read_text()
SHM = (DOCUMENTS / "shm.md").read_text()


def tables(document: str) -> dict[str, tuple[int, list[tuple[int, int, str]]]]:
    """The document's structs by name: bytes as their heading says, and offset, bytes and name of each field."""
    found = {}
    for heading in re.finditer(
        r"^##+ (\w+) \((\d+) bytes\)\n\n(?:[^|\n].*\n+)*((?:\|.*\n)+)", document, re.MULTILINE
    ):
        lines = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in heading[3].splitlines()[2:]
        ]
        rows = [(int(offset), int(size), field) for offset, size, field, *_ in lines]
        found[heading[1]] = (int(heading[2]), rows)
    return found


def test_the_peer_has_every_struct_of_the_documents_as_its_table_says() -> None:
    ours = {kind.__name__: (kind.size(), kind.rows()) for kind in records.Record.__subclasses__()}
    assert set(tables(SHM)) == {"ShmHeader", "ShmEnd"}
    assert ours == tables(WIRE) | tables(SHM)


def test_the_peer_has_every_frame_type_of_the_document() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (client|server|both) \|", WIRE, re.MULTILINE)
    assert [(int(number), name.upper()) for number, name, _ in rows] == [(kind, kind.name) for kind in Type]
    for number, _, sender in rows:
        assert (int(number) in records.FROM_CLIENT) == (sender != "server")
        assert (int(number) in records.FROM_SERVER) == (sender != "client")


CONNECT = replace(Wishes("service", Transport.TCP).connect_body(), boot_nonce=0x0102030405060708)
HEADER = records.FrameHeader(b"OFL1", 2, Type.HEARTBEAT, 0, 0, 0)
LINK = records.RdmaLinkBody(b"\xfe" + bytes(15), 17, 0, 3, 24, 1024)


def test_integers_are_little_endian_and_there_is_no_padding() -> None:
    frame = Frame(Type.REQUEST, sequence=0x0102, body=b"abc", flags=records.PLACED)
    assert frame.pack() == b"OFL1\2\4\1\0\2\1\0\0\0\0\0\0\3\0\0\0\0\0\0\0abc"
    assert CONNECT.pack()[:16] == b"\x08\x07\x06\x05\x04\x03\x02\x01\0\0\x10\0\1\0\1\0"


@pytest.mark.parametrize(
    ("record", "change", "clause"),
    [
        (HEADER, {"magic": b"OFL2"}, "magic"),
        (HEADER, {"header_version": 1}, "header_version"),
        (HEADER, {"type": 13}, "type 13"),
        (HEADER, {"type": 0}, "type 0"),
        (HEADER, {"flags": 1}, "flags"),
        (HEADER, {"type": Type.REQUEST, "sequence": 1, "flags": 2}, "flags"),
        (HEADER, {"sequence": 1}, "sequence"),
        (HEADER, {"type": Type.REPLY}, "sequence"),
        (HEADER, {"body_bytes": 1}, "body_bytes"),
        (HEADER, {"reserved": 1}, "reserved"),
        (CONNECT, {"frame_bytes_max": 1023}, "frame_bytes_max"),
        (CONNECT, {"frame_bytes_max": (1 << 30) + 1}, "frame_bytes_max"),
        (CONNECT, {"version_min": 2}, "version_min"),
        (CONNECT, {"heartbeat_ms": 9}, "heartbeat_ms"),
        (CONNECT, {"heartbeat_ms": 1000, "loss_ms": 1999}, "loss_ms"),
        (CONNECT, {"transport": 4}, "transport"),
        (CONNECT, {"authentication": 2}, "authentication"),
        (CONNECT, {"authentication": 1}, "nonce"),
        (CONNECT, {"service": bytes(64)}, "service"),
        (CONNECT, {"service": b"a\0b".ljust(64, b"\0")}, "service"),
        (CONNECT, {"reserved": 1}, "reserved"),
        (CONNECT, {"reserved_2": 1}, "reserved_2"),
        (LINK, {"gid": bytes(16)}, "gid"),
        (LINK, {"queue_pair": 1 << 24}, "queue_pair"),
        (LINK, {"packet_sequence": 1 << 24}, "packet_sequence"),
        (LINK, {"receives": 2}, "receives"),
        (LINK, {"segment_bytes": 23}, "segment_bytes"),
        (LINK, {"mtu_bytes": 1500}, "mtu_bytes"),
        (records.AcceptBody(1, 1024, 1, 0, 256, 1, 0, 0, bytes(32)), {"calls_max": 257}, "calls_max"),
        (records.AcceptBody(1, 1024, 1, 0, 256, 1, 0, 0, bytes(32)), {"mac": b"m" * 32}, "mac"),
        (records.RefuseBody(1), {"code": 8}, "code"),
        (records.ChallengeBody(b"n" * 32), {"nonce": bytes(32)}, "nonce"),
    ],
)
def test_a_value_that_the_document_excludes_is_found(
    record: records.Record, change: dict[str, object], clause: str
) -> None:
    assert type(record).unpack(record.pack()) == record
    with pytest.raises(WireFaultError, match=clause):
        type(record).unpack(replace(record, **change).pack())


@pytest.mark.parametrize("step", [1, 23, 24, 25, 1000])
def test_frames_are_joined_from_pieces_of_any_size(step: int) -> None:
    sent = [
        Frame(Type.HEARTBEAT),
        Frame(Type.REQUEST, 1, b"x" * 50),
        Frame(Type.REQUEST, 2),
        Frame(Type.CLOSE, body=b"end"),
    ]
    data = b"".join(frame.pack() for frame in sent)
    joiner = FrameJoiner(FROM_CLIENT)
    pieces = [joiner.feed(data[at : at + step]) for at in range(0, len(data), step)]
    assert [frame for piece in pieces for frame in piece] == sent
    assert not joiner.halfway


def test_a_frame_of_the_other_end_or_over_the_limit_is_found_by_its_header() -> None:
    joiner = FrameJoiner(FROM_SERVER)
    with pytest.raises(WireFaultError, match="wrong end"):
        joiner.feed(Frame(Type.REQUEST, 1, b"x").pack())
    joiner = FrameJoiner(FROM_CLIENT)
    joiner.body_bytes_max = 1024
    joiner.feed(Frame(Type.REQUEST, 1, bytes(1040), records.PLACED).pack()[:24])
    joiner = FrameJoiner(FROM_CLIENT)
    joiner.body_bytes_max = 1024
    with pytest.raises(WireFaultError, match="body_bytes"):
        joiner.feed(Frame(Type.REQUEST, 1, bytes(1025)).pack()[:24])


def test_an_overdraft_is_found_at_the_first_segment_that_makes_it() -> None:
    credits = Credits(ours=5, theirs=5)
    for _ in range(3):
        credits.received(24, 0)
    for nbytes, clause in ((24, "a segment with bytes came with 2"), (0, "")):
        if clause:
            with pytest.raises(WireFaultError, match=clause):
                credits.received(nbytes, 0)
        else:
            credits.received(0, 0)
            credits.received(0, 0)
            with pytest.raises(WireFaultError, match="without bytes came with 0"):
                credits.received(0, 0)
    with pytest.raises(WireFaultError, match="a write with immediate came with 0"):
        credits.placed()
    assert credits.tell() == 5
    credits.placed()
    assert (credits.granted, credits.untold) == (4, 1)


def test_more_receives_returned_than_were_used_are_found() -> None:
    credits = Credits(ours=9, theirs=9)
    for _ in range(4):
        credits.sent()
    credits.received(0, 4)
    with pytest.raises(WireFaultError, match="returns 1 receives, and 10 of 9"):
        credits.received(0, 1)


def test_two_receives_are_left_to_segments_without_bytes_and_half_of_them_are_told() -> None:
    credits = Credits(ours=6, theirs=6)
    while credits.may_send:
        credits.sent()
    assert credits.left == 2
    for arrived in range(1, 4):
        assert not credits.update_is_due
        credits.received(24, 0)
        assert credits.untold == arrived
    assert credits.update_is_due
