"""Requests and replies on a healthy connection, and what both ends agree on."""

import contextlib
import random
import threading
import time
from typing import cast

import pytest
from ofl.contract.records import Buffer
from ofl.errors import AddressInUseError, ConnectRefusedError, TransportError
from ofl.interface import Connected, Disconnected, Request
from transport_harness import ClientOptions, Harness, said
from transport_times import after, eventually, joined, scaled, soon, span_ns

# Around the sizes where the path changes: the landing slot, the stage, a segment, and bodies that change hands.
SIZES = [0, 1, 4095, 4096, 4097, 16383, 16384, 16385, 65535, 65536, 65537, 1 << 20]


@pytest.mark.smoke
def test_bodies_of_any_size_come_back_unchanged(harness: Harness) -> None:
    _, endpoint = harness.echo()
    client = harness.client(endpoint)
    for size in SIZES:
        body = random.Random(size).randbytes(size)
        assert client.call([body], deadline_ns=soon()) == body, size


def test_parts_of_every_buffer_kind_arrive_joined_in_order(harness: Harness) -> None:
    _, endpoint = harness.echo()
    client = harness.client(endpoint)
    frozen = memoryview(b"0123456789")[3:7]
    parts: list[Buffer] = [
        b"bytes ",
        bytearray(b"bytearray "),
        frozen,
        memoryview(bytearray(b" writable")),
        b"",
    ]
    assert client.call(parts, deadline_ns=soon()) == b"bytes bytearray 3456 writable"


def test_parts_on_both_sides_of_a_segment_boundary_arrive_joined(harness: Harness) -> None:
    _, endpoint = harness.echo()
    client = harness.client(endpoint)
    chance = random.Random(5)
    for sizes in ([16384, 1], [1, 16384], [16383, 1, 16384], [40_000, 5000, 0, 60_000], [1000] * 64):
        parts = [chance.randbytes(size) for size in sizes]
        assert client.call(parts, deadline_ns=soon()) == b"".join(parts)


def test_a_buffer_is_free_again_after_submit(harness: Harness) -> None:
    _, endpoint = harness.echo()
    client = harness.client(endpoint)
    for size in (5, 5000, 500_000):
        buffer = bytearray(b"x" * size)
        sequence = client.submit([buffer], deadline_ns=soon())
        buffer[:] = b"y" * (size + 1)  # resizing raises BufferError while somebody still holds the buffer
        assert client.wait(sequence, deadline_ns=soon()) == b"x" * size


def test_more_parts_than_supported_are_refused_before_anything_is_sent(harness: Harness) -> None:
    _, endpoint = harness.echo()
    client = harness.client(endpoint)
    with pytest.raises(ValueError, match="65 parts are more than 64"):
        client.submit([b"x"] * 65, deadline_ns=soon())
    assert client.call([b"x"] * 64, deadline_ns=soon()) == b"x" * 64


@pytest.mark.smoke
def test_replies_may_come_in_any_order(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
    bodies = [f"call {index}".encode() * (index + 1) for index in range(100)]
    sequences = [client.submit([body], deadline_ns=soon()) for body in bodies]
    requests = [server.next_event(deadline_ns=soon()) for _ in bodies]
    shuffled = random.Random(1)
    shuffled.shuffle(requests)
    for request in requests:
        assert isinstance(request, Request)
        assert server.reply(request.connection, request.sequence, [b"re: ", request.body])
    order = list(range(100))
    shuffled.shuffle(order)
    for index in order:
        assert client.wait(sequences[index], deadline_ns=soon()) == b"re: " + bodies[index]


def test_requests_arrive_in_order_with_the_time_of_arrival(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    before = time.monotonic_ns()
    for index in range(20):
        client.submit([bytes([index])], deadline_ns=soon())
    server.next_event(deadline_ns=soon())
    stamps = []
    for index in range(20):
        request = server.next_event(deadline_ns=soon())
        assert isinstance(request, Request)
        assert bytes(request.body) == bytes([index])
        stamps.append(request.received_ns)
    assert stamps == sorted(stamps)
    assert before <= stamps[0]
    assert stamps[-1] <= time.monotonic_ns()


def test_a_large_body_stays_valid_as_long_as_it_is_referenced(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    bodies = [bytes([index]) * 200_000 for index in range(8)]
    for body in bodies:
        client.submit([body], deadline_ns=soon())
    server.next_event(deadline_ns=soon())
    held = [server.next_event(deadline_ns=soon()) for _ in bodies]
    client.close()
    server.close()
    assert [bytes(event.body) for event in held if isinstance(event, Request)] == bodies


def test_many_clients_share_one_server(harness: Harness) -> None:
    server, endpoint = harness.echo()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            client = harness.client(endpoint)
            random_ = random.Random(seed)
            for _ in range(100):
                body = random_.randbytes(random_.randrange(20_000))
                assert client.call([body], deadline_ns=soon()) == body
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert server.counters()["requests"] == server.counters()["replies"] == 800


def test_a_client_that_always_has_a_request_ready_keeps_nobody_out(harness: Harness) -> None:
    server, endpoint = harness.listening(spin_ns=50_000)
    other = harness.client(server.listen("tcp://127.0.0.1:0"))
    stop = threading.Event()
    late_ns: list[int] = []

    def serve() -> None:
        while not stop.is_set():
            event = server.next_event(deadline_ns=soon())
            if isinstance(event, Request):
                time.sleep(scaled(0.002))  # a step of a model, during which more comes
                if bytes(event.body) != b"press":
                    late_ns.append(event.received_ns - int(bytes(event.body)))
                server.reply(event.connection, event.sequence, [event.body])

    thread = threading.Thread(target=serve)
    thread.start()
    said(harness.peer_process("presses", endpoint, "8", "2000"), "pressing")
    for _ in range(3):
        time.sleep(scaled(0.2))
        other.call([str(time.monotonic_ns()).encode()], deadline_ns=soon())
    stop.set()
    server.wake()
    thread.join()
    assert max(late_ns) < span_ns(1), "of 4 s that the others take"


def test_both_sides_agree_on_version_and_the_smaller_frame_limit(harness: Harness) -> None:
    server, endpoint = harness.listening(version_min=2, version_max=5, max_frame_bytes=50_000)
    client = harness.client(endpoint, version_min=1, version_max=4, max_frame_bytes=60_000)
    assert (client.peer.version, client.peer.max_frame_bytes) == (4, 50_000)
    other = harness.client(endpoint, version_min=5, version_max=9, max_frame_bytes=40_000)
    assert (other.peer.version, other.peer.max_frame_bytes) == (5, 40_000)
    connected = server.next_event(deadline_ns=soon())
    assert isinstance(connected, Connected)
    assert connected.version == 4


def test_another_service_is_refused_with_both_names(harness: Harness) -> None:
    server, endpoint = harness.echo()
    with pytest.raises(ConnectRefusedError, match="offers service 'ofl-echo', not 'dspark'"):
        harness.client(endpoint, service="dspark")
    assert server.counters()["refused"] == 1


def test_versions_without_overlap_are_refused_with_both_ranges(harness: Harness) -> None:
    _, endpoint = harness.listening(version_min=2, version_max=3)
    with pytest.raises(
        ConnectRefusedError, match=r"here in versions 2 to 3, and the client speaks version 1"
    ):
        harness.client(endpoint)


def test_a_full_server_refuses_with_its_limit_and_has_room_again_later(harness: Harness) -> None:
    server, endpoint = harness.echo(max_connections=1)
    first = harness.client(endpoint)
    with pytest.raises(ConnectRefusedError, match="all 1 connections"):
        harness.client(endpoint)
    first.close()
    eventually(lambda: server.counters()["disconnects"] == 1, "the first connection ends")
    assert harness.client(endpoint).call([b"room"], deadline_ns=soon()) == b"room"


def test_the_boot_nonce_tells_one_life_of_a_server_from_the_next(harness: Harness) -> None:
    server, endpoint = harness.echo()
    first, second = harness.client(endpoint), harness.client(endpoint)
    assert first.peer.boot_nonce == second.peer.boot_nonce != 0
    server.close()
    _, again = harness.echo(endpoint)
    assert again == endpoint
    assert harness.client(again).peer.boot_nonce != first.peer.boot_nonce


def test_a_place_in_use_is_reported_by_name(harness: Harness) -> None:
    _, endpoint = harness.echo()
    place = endpoint.partition("://")[2]
    with pytest.raises(AddressInUseError, match=rf"{place}.* is in use"):
        harness.server().listen(endpoint)


def test_nobody_listening_is_a_refusal_that_names_the_place(harness: Harness) -> None:
    server, endpoint = harness.echo()
    server.close()
    place = endpoint.partition("://")[2]
    with pytest.raises(ConnectRefusedError, match=f"nobody listens on .*{place}"):
        harness.client(endpoint)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("version_min", 2),
        ("version_max", -1),
        ("max_frame_bytes", 1 << 31),
        ("heartbeat_ns", 1),
        ("loss_ns", 1),
    ],
)
def test_a_bad_client_option_is_named(harness: Harness, option: str, value: int) -> None:
    _, endpoint = harness.echo()
    with pytest.raises(ValueError, match=option):
        harness.client(endpoint, **cast(ClientOptions, {option: value}))


def test_every_event_of_a_connection_comes_once_and_in_order(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    client.submit([b"only"], deadline_ns=soon())
    first = server.next_event(deadline_ns=soon())
    second = server.next_event(deadline_ns=soon())
    client.close()
    third = server.next_event(deadline_ns=soon())
    assert [type(event) for event in (first, second, third)] == [Connected, Request, Disconnected]
    assert isinstance(third, Disconnected)
    assert "goodbye" in third.reason
    assert server.next_event(deadline_ns=after(0.05)) is None


def test_a_second_consumer_is_refused(harness: Harness) -> None:
    server, _ = harness.listening()
    results: list[object] = []

    def consume() -> None:
        while not results:
            with contextlib.suppress(TransportError):  # the other thread was inside for a moment
                results.append(server.next_event(deadline_ns=soon()))

    thread = threading.Thread(target=consume)
    thread.start()

    def refused() -> bool:
        try:
            server.next_event(deadline_ns=0)
        except TransportError as error:
            return "another thread" in str(error)
        return False

    eventually(refused, "the thread is inside next_event")
    server.wake()
    joined(thread)
    assert results == [None]
