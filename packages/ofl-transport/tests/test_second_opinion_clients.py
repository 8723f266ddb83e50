"""Clients of the second opinion (rdma/second_opinion) against the library's server, over TCP and shared memory.

Over RDMA: rdma/test_second_opinion_client.py.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ofl.interface import Connected, Disconnected
from rdma.second_opinion.control import EndedError
from rdma.second_opinion.negotiation import RefusedError
from rdma.second_opinion.records import Refusal, Transport
from rdma.second_opinion.wires import Room
from rdma.second_opinion_rig import Changes, TwoSidedRig, two_sided_rig
from transport_backends import SHM, TCP
from transport_harness import Harness, answer, take
from transport_times import scaled, soon

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


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "key"])
def test_a_client_of_the_document_negotiates_and_is_echoed(
    harness: Harness, rig: TwoSidedRig, key: bytes | None, key_file: Path
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
    harness: Harness, rig: TwoSidedRig, key_file: Path
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
    ],
)
def test_a_client_is_refused_with_the_documents_code(
    harness: Harness,
    rig: TwoSidedRig,
    changes: Changes,
    code: Refusal,
) -> None:
    server, endpoint = harness.echo()
    with pytest.raises(RefusedError) as refused:
        rig.client_peer(endpoint, **changes)
    assert refused.value.code == code, refused.value
    assert server.counters()["refused"] == 1


def test_a_client_that_asks_for_another_wire_is_refused(harness: Harness, rig: TwoSidedRig) -> None:
    _, endpoint = harness.echo()
    for transport in set(Transport) - {rig.transport}:
        with pytest.raises(RefusedError) as refused:
            rig.client_peer(endpoint, transport=transport)
        assert refused.value.code == Refusal.TRANSPORT


@pytest.mark.parametrize(
    "changes",
    [{"frame_bytes_max": 1023}, {"heartbeat_ms": 9}, {"heartbeat_ms": 1000, "loss_ms": 1999}],
    ids=["frame_bytes_max", "heartbeat_ms", "loss_ms"],
)
def test_a_client_that_tells_what_a_table_excludes_is_dropped_as_one_that_sends_no_frame(
    harness: Harness, rig: TwoSidedRig, changes: Changes
) -> None:
    server, endpoint = harness.echo()
    with pytest.raises(EndedError, match="the socket ended"):
        rig.client_peer(endpoint, **changes)
    assert (server.counters()["garbage"], server.counters()["accepted"]) == (1, 0)


def test_a_client_without_the_key_or_with_another_is_refused(
    harness: Harness, rig: TwoSidedRig, key_file: Path
) -> None:
    _, endpoint = harness.echo(key_file=key_file)
    for key in (None, KEY[::-1]):
        with pytest.raises(RefusedError) as refused:
            rig.client_peer(endpoint, key=key)
        assert refused.value.code == Refusal.AUTHENTICATION
    rig.client_peer(endpoint, key=KEY)


def test_a_placed_request_is_answered_by_a_frame_of_what_fits(harness: Harness, rig: TwoSidedRig) -> None:
    server, endpoint = harness.listening()
    peer = rig.client_peer(endpoint)
    sequence = peer.request(b"q" * 100, Room(0, 50))
    request = take(server)
    assert (bytes(request.body), request.max_reply_bytes) == (b"q" * 100, 50)
    answer(server, request, b"r" * 50)
    reply = peer.answers(1)[sequence]
    assert (reply.body, reply.placed) == (b"r" * 50, False)


def test_a_placed_request_may_have_the_largest_body_beside_its_record(
    harness: Harness, rig: TwoSidedRig
) -> None:
    server, endpoint = harness.listening(max_frame_bytes=4096)
    peer = rig.client_peer(endpoint)
    peer.request(b"q" * 4096, Room(0, 10))
    assert len(take(server).body) == 4096


def test_the_cancel_of_a_placed_request_is_answered_and_of_another_it_is_not(
    harness: Harness, rig: TwoSidedRig
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
    harness: Harness, rig: TwoSidedRig
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


def test_a_slot_is_used_by_generation_after_generation(harness: Harness, rig: TwoSidedRig) -> None:
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


def test_a_server_shows_signs_of_life_while_it_says_nothing_else(harness: Harness, rig: TwoSidedRig) -> None:
    _, endpoint = harness.listening()
    peer = rig.client_peer(endpoint)
    # Each after at least half of heartbeat_ms without anything else.
    assert peer.heartbeats_s(10) > 9 * scaled(0.025)


def test_a_silent_client_is_dropped_after_its_loss_ms_and_no_sooner(
    harness: Harness, rig: TwoSidedRig
) -> None:
    server, endpoint = harness.listening()
    # On a busy host the peer itself may fall silent for a second.
    peer = rig.client_peer(endpoint, loss_ms=int(scaled(3000)))
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    peer.pump(scaled(4))  # with heartbeats
    assert server.next_event(deadline_ns=0) is None
    assert isinstance(server.next_event(deadline_ns=soon()), Disconnected)
    assert time.monotonic() - peer.sent_at > scaled(3)
    assert server.counters()["lost"] == 1


def test_both_ends_are_told_why_the_other_closes(harness: Harness, rig: TwoSidedRig) -> None:
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
