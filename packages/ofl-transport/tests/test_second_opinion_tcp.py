"""The second opinion (rdma/second_opinion) over TCP: the library's two ends against a peer of the document alone.

Over RDMA the same and more in rdma/test_second_opinion_*.py.
"""

import os
import random
import time
from pathlib import Path

import pytest
from ofl.errors import ConnectRefusedError, DeadlineError, PeerLostError
from ofl.interface import Connected, Disconnected
from ofl.memory import Buffer
from rdma.second_opinion import records
from rdma.second_opinion.control import EndedError
from rdma.second_opinion.frames import Frame
from rdma.second_opinion.negotiation import RefusedError
from rdma.second_opinion.peers import Cancel
from rdma.second_opinion.records import Refusal, Transport, Type
from rdma.second_opinion.wires import Room, SocketWire
from rdma.second_opinion_rig import Rig
from transport_harness import Harness, after, answer, scaled, soon, take

KEY = b"0123456789abcdef0123456789abcdef"
SIZES = [0, 1, 24, 4096, 16359, 16360, 16361, 75_000, 1 << 20]


@pytest.fixture
def rig(harness: Harness) -> Rig[SocketWire]:
    return Rig(harness, Transport.TCP, "127.0.0.1", SocketWire, SocketWire)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """Holds KEY."""
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(KEY + b"\n")
    return path


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "key"])
def test_a_client_of_the_document_negotiates_and_is_echoed(
    harness: Harness, rig: Rig[SocketWire], key: bytes | None, key_file: Path
) -> None:
    server, endpoint = harness.echo(max_calls=9, key_file=key_file if key else None)
    peer = rig.client_peer(endpoint, key=key, frame_bytes_max=1 << 25)
    assert peer.agreement.accept.calls_max == 9
    assert peer.agreement.accept.frame_bytes_max == 1 << 20
    for size in SIZES:
        body = random.Random(size).randbytes(size)
        sequence = peer.request(body)
        assert peer.answers(1)[sequence].body == body, size
    assert server.counters()["garbage"] == 0


def test_nonces_are_new_on_every_connection_and_the_boot_nonce_is_not(
    harness: Harness, rig: Rig[SocketWire], key_file: Path
) -> None:
    _, endpoint = harness.echo(key_file=key_file)
    accepts = [rig.client_peer(endpoint, key=KEY).agreement.accept for _ in range(3)]
    assert len({accept.boot_nonce for accept in accepts}) == 1
    assert len({accept.mac for accept in accepts}) == 3


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"service": "another"}, Refusal.SERVICE),
        ({"version_min": 2, "version_max": 3}, Refusal.VERSION),
        ({"key": KEY}, Refusal.AUTHENTICATION),
        ({"transport": Transport.SHM}, Refusal.TRANSPORT),
        ({"transport": Transport.RDMA}, Refusal.TRANSPORT),
    ],
)
def test_a_client_is_refused_with_the_documents_code(
    harness: Harness,
    rig: Rig[SocketWire],
    changes: dict[str, object],
    code: Refusal,
) -> None:
    server, endpoint = harness.echo()
    with pytest.raises(RefusedError) as refused:
        rig.client_peer(endpoint, **changes)
    assert refused.value.code == code, refused.value
    assert server.counters()["refused"] == 1


@pytest.mark.parametrize(
    "changes",
    [{"frame_bytes_max": 1023}, {"heartbeat_ms": 9}, {"heartbeat_ms": 1000, "loss_ms": 1999}],
    ids=["frame_bytes_max", "heartbeat_ms", "loss_ms"],
)
def test_a_client_that_tells_what_a_table_excludes_is_dropped_as_one_that_sends_no_frame(
    harness: Harness, rig: Rig[SocketWire], changes: dict[str, object]
) -> None:
    server, endpoint = harness.echo()
    with pytest.raises(EndedError, match="the socket ended"):
        rig.client_peer(endpoint, **changes)
    assert (server.counters()["garbage"], server.counters()["accepted"]) == (1, 0)


def test_a_client_without_the_key_or_with_another_is_refused(
    harness: Harness, rig: Rig[SocketWire], key_file: Path
) -> None:
    _, endpoint = harness.echo(key_file=key_file)
    for key in (None, KEY[::-1]):
        with pytest.raises(RefusedError) as refused:
            rig.client_peer(endpoint, key=key)
        assert refused.value.code == Refusal.AUTHENTICATION
    rig.client_peer(endpoint, key=KEY)


def test_a_placed_request_over_tcp_is_answered_by_a_frame_of_what_fits(
    harness: Harness, rig: Rig[SocketWire]
) -> None:
    server, endpoint = harness.listening()
    peer = rig.client_peer(endpoint)
    sequence = peer.request(b"q" * 100, Room(0, 50))
    request = take(server)
    assert (bytes(request.body), request.max_reply_bytes) == (b"q" * 100, 50)
    answer(server, request, b"r" * 50)
    reply = peer.answers(1)[sequence]
    assert (reply.body, reply.placed) == (b"r" * 50, False)


def test_a_placed_request_may_have_the_largest_body_beside_its_record(
    harness: Harness, rig: Rig[SocketWire]
) -> None:
    server, endpoint = harness.listening(max_frame_bytes=4096)
    peer = rig.client_peer(endpoint)
    peer.request(b"q" * 4096, Room(0, 10))
    assert len(take(server).body) == 4096


def test_the_cancel_of_a_placed_request_is_answered_and_of_another_it_is_not(
    harness: Harness, rig: Rig[SocketWire]
) -> None:
    server, endpoint = harness.listening()
    peer = rig.client_peer(endpoint)
    plain, placed, other = peer.request(b"plain"), peer.request(b"placed", Room(0, 9)), peer.request(b"other")
    requests = [take(server) for _ in range(3)]
    peer.cancel(plain)
    peer.cancel(placed)
    settled = peer.answer()  # judged: one for the plain call would be a fault
    assert (settled.sequence, settled.cancelled) == (placed, True)
    for request in requests[:2]:
        assert not server.reply(request.connection, request.sequence, [b"too late"])
    answer(server, requests[2], b"in time")
    last = peer.answer()
    assert (last.sequence, last.body) == (other, b"in time")


def test_a_cancel_that_crosses_the_reply_of_a_placed_request_is_not_answered(
    harness: Harness, rig: Rig[SocketWire]
) -> None:
    server, endpoint = harness.listening()
    peer = rig.client_peer(endpoint)
    placed, other = peer.request(b"placed", Room(0, 9)), peer.request(b"other")
    answer(server, take(server), b"reply")
    peer.cancel(placed)
    answer(server, take(server), b"behind the cancel")
    assert peer.answer().body == b"reply"
    last = peer.answer()
    assert (last.sequence, last.body) == (other, b"behind the cancel")


def test_a_slot_is_used_by_generation_after_generation(harness: Harness, rig: Rig[SocketWire]) -> None:
    server, endpoint = harness.listening()
    peer = rig.client_peer(endpoint)
    late = peer.request(b"cancelled")
    first = take(server)
    peer.cancel(late)
    for number in range(2, 258):  # 257 has the slot of call 1
        assert peer.request(b"%d" % number) == number
        request = take(server)
        answer(server, request, b"%d" % number)
        assert peer.answers(1)[number].body == b"%d" % number
    assert not server.reply(first.connection, first.sequence, [b"late"])


def test_a_server_shows_signs_of_life_while_it_says_nothing_else(
    harness: Harness, rig: Rig[SocketWire]
) -> None:
    _, endpoint = harness.listening()
    peer = rig.client_peer(endpoint)
    # Each after at least half of heartbeat_ms without anything else.
    assert peer.heartbeats_s(10) > 9 * scaled(0.025)


def test_a_silent_client_is_dropped_after_its_loss_ms_and_no_sooner(
    harness: Harness, rig: Rig[SocketWire]
) -> None:
    server, endpoint = harness.listening()
    peer = rig.client_peer(endpoint, loss_ms=int(scaled(1000)))
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    peer.pump(scaled(2))  # with heartbeats
    assert server.next_event(deadline_ns=0) is None
    assert isinstance(server.next_event(deadline_ns=soon()), Disconnected)
    assert time.monotonic() - peer.sent_at > scaled(1)
    assert server.counters()["lost"] == 1


def test_both_ends_are_told_why_the_other_closes(harness: Harness, rig: Rig[SocketWire]) -> None:
    server, endpoint = harness.listening()
    peer = rig.client_peer(endpoint)
    connected = server.next_event(deadline_ns=soon())
    assert isinstance(connected, Connected)
    server.disconnect(connected.connection, "maintenance")
    assert peer.ended().text == "maintenance"
    peer = rig.client_peer(endpoint)
    peer.say_goodbye("enough")
    events = [server.next_event(deadline_ns=soon()) for _ in range(3)]
    assert [type(event) for event in events] == [Disconnected, Connected, Disconnected]
    assert isinstance(events[2], Disconnected)
    assert "goodbye" in events[2].reason


def test_a_client_of_the_library_negotiates_with_a_server_of_the_document(rig: Rig[SocketWire]) -> None:
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


def test_a_client_of_the_library_proves_its_key_and_wants_a_proof(
    rig: Rig[SocketWire], key_file: Path
) -> None:
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
    rig: Rig[SocketWire], key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = rig.connecting(key_file=key_file)
    with pytest.raises(RefusedError, match="the proof is wrong"):
        rig.accept(key=KEY[::-1])
    with pytest.raises(ConnectRefusedError, match="the proof is wrong"):
        connecting.result()
    # One that takes every proof, and has another key.
    monkeypatch.setattr("rdma.second_opinion.negotiation.hmac.compare_digest", lambda *_: True)
    connecting = rig.connecting(key_file=key_file)
    rig.accept(key=KEY[::-1])
    with pytest.raises(ConnectRefusedError, match="does not hold the key"):
        connecting.result()


def test_a_client_of_the_library_tells_where_a_reply_shall_go(rig: Rig[SocketWire]) -> None:
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


def test_what_a_server_still_says_of_a_cancelled_placed_call_touches_nobody(rig: Rig[SocketWire]) -> None:
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
            assert client.wait(sequence, deadline_ns=soon()) == b"fine"
    assert new.sequence == old.sequence + 256
    peer.send(Frame(Type.REPLY, old.sequence, b"late" * 200))  # it crossed the cancel
    peer.settle(old)
    with pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=after(0.05))
    assert bytes(buffer.view) == b"fine" + b"m" * 996
    peer.reply(new, b"good")
    assert client.wait(sequence, deadline_ns=soon()) == b"good"
    assert bytes(buffer.view) == b"good" + b"m" * 996


def test_a_reply_of_a_cancelled_call_is_dropped(rig: Rig[SocketWire]) -> None:
    client, peer = rig.pair()
    given_up = client.submit([b"1"], deadline_ns=soon())
    request = peer.request()
    client.cancel(given_up)
    assert peer.cancel() == Cancel(given_up)
    peer.send(Frame(Type.REPLY, request.sequence, b"late"))
    sequence = client.submit([b"2"], deadline_ns=soon())
    peer.reply(peer.request(), b"in time")
    assert client.wait(sequence, deadline_ns=soon()) == b"in time"


def test_a_client_of_the_library_shows_signs_of_life_and_says_goodbye(rig: Rig[SocketWire]) -> None:
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
    rig: Rig[SocketWire], sent: Frame, clause: str
) -> None:
    client, peer = rig.pair()
    sequence = client.submit([os.urandom(8)], deadline_ns=soon())
    peer.request()
    peer.send(sent)
    with pytest.raises(PeerLostError, match=clause):
        client.wait(sequence, deadline_ns=soon())
