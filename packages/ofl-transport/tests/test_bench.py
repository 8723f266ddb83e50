"""`ofl bench` for real: figures that add up, a server that ends, and a broken transfer that is never a fast one."""

import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from ofl.bench import MAX_FRAME_BYTES, SERVICE
from ofl.bench.figures import Case, Mode, cases
from ofl.bench.measure import Meter, Target
from ofl.bench.own_server import own_server
from ofl.errors import DeadlineError, PeerLostError, TransportError
from ofl.interface import Connected, Request
from ofl.server import Server
from transport_harness import Harness
from transport_times import eventually, joined, soon

SECOND = 1_000_000_000
REQUEST = struct.Struct("<IIQ")  # mode, stamp, bytes of the reply
ECHO, TO_SERVER, TO_CLIENT, CPU_TIME = range(1, 5)
SIZES = [1, 7, 8, 9, 15, 16, 17, 64, 4096, 75_000, 3_000_001]


@contextmanager
def meter(endpoint: str, timeout_ns: int = 20 * SECOND) -> Iterator[Meter]:
    with Meter(Target(endpoint, spin_us=50, timeout_ns=timeout_ns)) as made:
        yield made


@pytest.fixture(params=["tcp://127.0.0.1:0", f"shm://test-bench-{os.getpid()}"], ids=["tcp", "shm"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """A bench server in a process of its own."""
    with own_server(request.param, spin_us=50, key_file=None) as bound:
        yield bound


def test_every_case_of_every_size_comes_back_right(endpoint: str) -> None:
    with meter(endpoint) as measured:
        for size in [0, *SIZES]:
            for case in cases([size]):
                result = measured.measure(case, 0.01)
                latency = result.latency
                assert latency.count >= 5
                assert 0 < latency.min_ns <= latency.p50_ns <= latency.p99_ns <= latency.max_ns
                assert latency.max_ns <= result.elapsed_ns


def test_the_processors_time_of_both_processes_is_told_apart(endpoint: str) -> None:
    with meter(endpoint) as measured:
        result = measured.measure(Case(Mode.ECHO, 4096), 0.3)
    wall_s = result.elapsed_ns / 1e9
    # Both ends look for 50 us before they sleep, and have one thread that works and one that keeps watch.
    assert 0 < result.client_cpu_s < 2.5 * wall_s
    assert 0 < result.server_cpu_s < 2.5 * wall_s


def test_the_first_call_after_silence_is_measured_so_often(endpoint: str) -> None:
    with meter(endpoint) as measured:
        latency = measured.first_after_idle(Case(Mode.ECHO, 64), 0.02, 3)
    assert latency.count == 3
    assert latency.max_ns < 20 * SECOND


# --- servers that get it wrong ---


@contextmanager
def playing(
    harness: Harness, reply: Callable[[Request, int, int, int], bytes]
) -> Iterator[tuple[Server, str]]:
    """A server of the service whose replies the test makes, from mode, stamp and wanted bytes."""
    server = harness.server(SERVICE, max_frame_bytes=MAX_FRAME_BYTES)
    endpoint = server.listen("tcp://127.0.0.1:0")
    stop = threading.Event()

    def play() -> None:
        while not stop.is_set():
            event = server.next_event(deadline_ns=soon())
            if isinstance(event, Request):
                server.reply(
                    event.connection, event.sequence, [reply(event, *REQUEST.unpack(event.body[:16]))]
                )

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield server, endpoint
    finally:
        stop.set()
        server.wake()
        joined(thread)


def spread(number: int) -> int:
    """The word that marks a body, and the words of the server's text: multiples of an odd number."""
    return (number + 1) * 0x9E3779B97F4A7C15 % 2**64


def text(shift: int, size: int) -> bytes:
    """The server's endless text from a place on, made another way than the library makes it."""
    first, last = shift // 8, (shift + size) // 8 + 1
    words = b"".join(spread(number).to_bytes(8, "little") for number in range(first, last + 1))
    return words[shift % 8 : shift % 8 + size]


def right_reply(request: Request, mode: int, stamp: int, size: int) -> bytes:
    if mode == ECHO:
        return bytes(request.body[16:])
    if mode == TO_CLIENT:
        return text(stamp % 64 * 64, size)
    return bytes(8) if mode == CPU_TIME else b""


@pytest.mark.parametrize("size", [1, 7, 9, 15, 17, 4097])
@pytest.mark.parametrize("mode", [Mode.ECHO, Mode.TO_SERVER, Mode.TO_CLIENT])
def test_a_server_made_from_the_description_alone_is_right(harness: Harness, mode: Mode, size: int) -> None:
    with playing(harness, right_reply) as (_, endpoint), meter(endpoint) as measured:
        assert measured.measure(Case(mode, size), 0.01).latency.count >= 5


def first_word(body: bytearray) -> None:
    body[0] ^= 1


def last_word(body: bytearray) -> None:
    body[-1] ^= 0x80


def shorter(body: bytearray) -> None:
    del body[-1]


@pytest.mark.parametrize("spoil", [first_word, last_word, shorter])
@pytest.mark.parametrize("size", [1, 8, 15, 16, 4096])
@pytest.mark.parametrize(
    ("mode", "placed"), [(Mode.ECHO, False), (Mode.TO_CLIENT, False), (Mode.TO_CLIENT, True)]
)
def test_a_reply_that_is_wrong_at_an_end_is_no_result(
    harness: Harness, mode: Mode, placed: bool, size: int, spoil: Callable[[bytearray], None]
) -> None:
    def reply(request: Request, *fields: int) -> bytes:
        body = bytearray(right_reply(request, *fields))
        if fields[0] == mode and fields[1] == 3:  # the third transfer
            spoil(body)
        return bytes(body)

    with (
        playing(harness, reply) as (_, endpoint),
        meter(endpoint) as measured,
        pytest.raises(TransportError, match="not what was asked for at its first or last word"),
    ):
        measured.measure(Case(mode, size, placed), 0.01)


@pytest.mark.parametrize("placed", [False, True])
def test_the_reply_to_another_transfer_is_no_result(harness: Harness, placed: bool) -> None:
    def reply(request: Request, mode: int, stamp: int, size: int) -> bytes:
        return right_reply(request, mode, 1 if mode == TO_CLIENT else stamp, size)

    with (
        playing(harness, reply) as (_, endpoint),
        meter(endpoint) as measured,
        pytest.raises(TransportError, match="first or last word"),
    ):
        measured.measure(Case(Mode.TO_CLIENT, 4096, placed), 0.01)


@pytest.mark.parametrize(
    ("header", "payload", "reason"),
    [
        ((TO_SERVER, 5, 0), b"not what the stamp says", "the ends of a request's body"),
        ((TO_CLIENT, 5, MAX_FRAME_BYTES + 1), b"", "reply_bytes is over the limit"),
        ((9, 5, 0), b"", "mode of a request is unknown"),
        (None, b"short", "shorter than its header"),
    ],
)
def test_a_request_that_breaks_the_service_ends_its_connection_with_the_reason(
    endpoint: str, header: tuple[int, int, int] | None, payload: bytes, reason: str
) -> None:
    with meter(endpoint) as broken, meter(endpoint) as other:
        request = (REQUEST.pack(*header) if header else b"") + payload
        with pytest.raises(PeerLostError, match=reason):
            broken.client.call([request], deadline_ns=soon())
        assert other.measure(Case(Mode.ECHO, 8), 0.01).latency.count >= 5


def test_a_server_that_goes_silent_is_met_by_the_timeout_and_leaves_no_call_open(harness: Harness) -> None:
    server, endpoint = harness.listening(SERVICE, max_frame_bytes=MAX_FRAME_BYTES)
    with meter(endpoint, timeout_ns=SECOND // 5) as measured:
        with pytest.raises(DeadlineError, match=r"no reply within 0\.2 s"):
            measured.measure(Case(Mode.TO_CLIENT, 4096, placed=True), 0.01)
        window = Case(Mode.TO_CLIENT, 4096, placed=True).window
        eventually(lambda: server.counters()["cancels"] == window, "every open transfer is cancelled")
        assert isinstance(server.next_event(deadline_ns=soon()), Connected)
        assert server.next_event(deadline_ns=0) is None


def test_a_server_that_hangs_up_while_it_is_measured_is_an_error(harness: Harness) -> None:
    servers: list[Server] = []

    def reply(request: Request, mode: int, stamp: int, size: int) -> bytes:
        if stamp == 3:
            servers[0].disconnect(request.connection, "as the test asks")
        return right_reply(request, mode, stamp, size)

    with playing(harness, reply) as (server, endpoint):
        servers.append(server)
        with meter(endpoint) as measured, pytest.raises(PeerLostError, match="as the test asks"):
            measured.measure(Case(Mode.ECHO, 8), 0.01)
