"""Servers of the second opinion (rdma/second_opinion) against the library's client, over TCP and shared memory.

Over RDMA: rdma/test_second_opinion_server.py.
"""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from ofl.errors import ConnectRefusedError, DeadlineError, PeerLostError
from ofl.memory import Buffer
from rdma.second_opinion import records
from rdma.second_opinion.control import EndedError
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.negotiation import RefusedError
from rdma.second_opinion.peers import Cancel
from rdma.second_opinion.records import Type
from rdma.second_opinion_rig import TwoSidedRig, two_sided_rig
from transport_backends import SHM, TCP
from transport_harness import Harness
from transport_times import after, scaled, soon

KEY = b"0123456789abcdef0123456789abcdef"
SIZES = [0, 1, 24, 4096, 16359, 16360, 16361, 75_000, 1 << 20]


@pytest.fixture(params=[TCP, SHM], ids=str)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = Harness(request.param)
    with made.stack:
        yield made


@pytest.fixture
def rig(harness: Harness) -> TwoSidedRig:
    return two_sided_rig(harness)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """Holds KEY."""
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(KEY + b"\n")
    return path


def test_a_client_of_the_library_negotiates_with_a_server_of_the_document(rig: TwoSidedRig) -> None:
    client, peer = rig.pair(calls_max=7, frame_bytes_max=1 << 16)
    assert (client.max_calls, client.peer.max_frame_bytes, client.peer.version) == (7, 1 << 16, 1)
    assert client.peer.boot_nonce == peer.agreement.accept.boot_nonce
    assert not client.peer.authenticated
    for size in SIZES[:-2]:
        body = random.Random(size).randbytes(size)
        sequence = client.submit([body[: size // 2], body[size // 2 :]], deadline_ns=soon())
        request = peer.request()
        assert (request.sequence, request.body, request.placement) == (sequence, body, None)
        peer.reply(request, body[::-1])
        assert client.wait(sequence, deadline_ns=soon()) == body[::-1]


def test_a_client_of_the_library_proves_its_key_and_wants_a_proof(rig: TwoSidedRig, key_file: Path) -> None:
    connecting = rig.connecting(key_file=key_file)
    peer = rig.accept(key=KEY)
    assert connecting.result().peer.authenticated
    nonces = {peer.agreement.connect.nonce}
    for _ in range(2):
        connecting = rig.connecting(key_file=key_file)
        nonces.add(rig.accept(key=KEY).agreement.connect.nonce)
        connecting.result()
    assert len(nonces) == 3


def test_a_client_of_the_library_refuses_a_server_that_cannot_prove_the_key(
    rig: TwoSidedRig, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = rig.connecting(key_file=key_file)
    with pytest.raises(RefusedError, match="the proof is wrong"):
        rig.accept(key=KEY[::-1])
    with pytest.raises(ConnectRefusedError, match="the proof is wrong"):
        connecting.result()
    # One that takes every proof, and has another key.
    monkeypatch.setattr("rdma.second_opinion.negotiation.hmac.compare_digest", lambda *_: True)
    connecting = rig.connecting(key_file=key_file)
    with contextlib.suppress(EndedError):  # where link frames would be next
        rig.accept(key=KEY[::-1])
    with pytest.raises(ConnectRefusedError, match="does not hold the key"):
        connecting.result()


def test_a_client_of_the_library_tells_where_a_reply_shall_go(rig: TwoSidedRig) -> None:
    client, peer = rig.pair()
    buffer = Buffer(1000)
    buffer.view[:] = b"\x5a" * 1000
    client.register(buffer)
    sequence = client.submit([b"question"], deadline_ns=soon(), into=buffer.range(100, 200))
    request = peer.request()
    assert request.body == b"question"
    assert request.placement == records.PlacementRecord(address=0, key=0, bytes=200)
    peer.reply(request, b"r" * 150)
    assert client.wait(sequence, deadline_ns=soon()) == b"r" * 150
    assert bytes(buffer.view) == b"\x5a" * 100 + b"r" * 150 + b"\x5a" * 750


def test_what_a_server_still_says_of_a_cancelled_placed_call_touches_nobody(rig: TwoSidedRig) -> None:
    client, peer = rig.pair()
    buffer = Buffer(1000)
    client.register(buffer)
    placed = client.submit([b"placed"], deadline_ns=soon(), into=buffer.range())
    old = peer.request()
    with pytest.raises(DeadlineError):
        client.wait(placed, deadline_ns=after(0.05))
    assert client.cancel(placed)  # our own CPU places, so nothing else can write there
    buffer.view[:] = b"m" * 1000
    assert peer.cancel() == Cancel(placed)
    new = old
    while new.slot != old.slot or new == old:
        sequence = client.submit([b"fallback"], deadline_ns=soon(), into=buffer.range(0, 10))
        new = peer.request()
        if new.slot != old.slot:
            peer.reply(new, b"fine")
            assert bytes(client.wait(sequence, deadline_ns=soon())) == b"fine"
    assert new.sequence == old.sequence + 256
    peer.send(Frame(Type.REPLY, old.sequence, b"late" * 200))  # it crossed the cancel
    peer.settle(old)
    with pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=after(0.05))
    assert bytes(buffer.view) == b"fine" + b"m" * 996
    peer.reply(new, b"good")
    assert bytes(client.wait(sequence, deadline_ns=soon())) == b"good"
    assert bytes(buffer.view) == b"good" + b"m" * 996


def test_a_reply_of_a_cancelled_call_is_dropped(rig: TwoSidedRig) -> None:
    client, peer = rig.pair()
    given_up = client.submit([b"1"], deadline_ns=soon())
    request = peer.request()
    client.cancel(given_up)
    assert peer.cancel() == Cancel(given_up)
    peer.send(Frame(Type.REPLY, request.sequence, b"late"))
    sequence = client.submit([b"2"], deadline_ns=soon())
    peer.reply(peer.request(), b"in time")
    assert client.wait(sequence, deadline_ns=soon()) == b"in time"


def test_a_client_of_the_library_shows_signs_of_life_and_says_goodbye(rig: TwoSidedRig) -> None:
    client, peer = rig.pair()
    told = peer.agreement.connect
    assert (told.heartbeat_ms, told.loss_ms) == (int(scaled(50)), int(scaled(20_000)))
    assert peer.heartbeats_s(10) > 9 * scaled(0.025)
    client.close()
    peer.ended()


@pytest.mark.parametrize(
    ("sent", "clause"),
    [
        (Frame(Type.REPLY, 99, b"?"), "never used"),
        (Frame(Type.CANCEL, 1), "type"),
        (Frame(Type.LINK, body=bytes(40)), "type"),
        (Frame(Type.REPLY, 1, b"?", flags=records.PLACED), "flags"),
        (Frame(Type.HEARTBEAT, 1), "sequence"),
    ],
    ids=["reply to nothing", "cancel", "link", "flag", "sequence"],
)
def test_a_server_that_breaks_the_document_is_left_with_the_field_named(
    rig: TwoSidedRig, sent: Frame, clause: str
) -> None:
    client, peer = rig.pair()
    sequence = client.submit([b"x"], deadline_ns=soon())
    peer.request()
    peer.send(sent)
    with pytest.raises(PeerLostError, match=clause):
        client.wait(sequence, deadline_ns=soon())
