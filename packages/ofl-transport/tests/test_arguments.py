"""What a caller passes reaches the library as it is, or is refused by name."""

from collections.abc import Callable

import pytest
from ofl.client import Client, connect
from ofl.errors import CancelledError, DeadlineError, TransportError
from ofl.memory import Buffer, Range
from ofl.server import Server
from transport_harness import Harness, take
from transport_times import soon

LIMITS = {"version_min": 1, "version_max": 1, "max_frame_bytes": 1 << 20}
CUT = [
    ("service", "ofl-echo\0other"),
    ("service", "\u00e4"),
    ("key_file", "/key\0other"),
    ("spin_ns", 1 << 63),
    ("spin_ns", -(1 << 63) - 1),
    ("version_min", -1),
    ("version_max", 1 << 16),
    ("max_frame_bytes", 1 << 32),
]
"""What ctypes, or an encoding with replacements, would make another value of."""


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *CUT,
        ("allowed", ["10.0.0.1\0/8"]),
        ("max_queued_bytes", -1),
        ("max_queued_bytes", 1 << 62),
        ("max_queued_bytes", 1 << 64),
        ("max_connections", -1),
        ("max_connections", 1 << 32),
        ("max_pending", 1 << 32),
        ("max_calls", (1 << 32) + 256),
        ("handshake_ns", (1 << 64) + 5),
        ("frame_ns", 1 << 63),
    ],
)
def test_an_option_of_a_server_is_never_taken_for_another(option: str, value: object) -> None:
    options = LIMITS | {"service": "ofl-echo"} | {option: value}
    with pytest.raises(ValueError, match=option.removesuffix("_file")):
        Server(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *CUT,
        ("heartbeat_ns", (1 << 64) + 50_000_000),
        ("loss_ns", (1 << 64) + 250_000_000),
        ("loss_ns", 1 << 63),
        ("deadline_ns", 1 << 63),
        ("deadline_ns", -(1 << 63) - 1),
    ],
)
def test_an_option_of_a_client_is_never_taken_for_another(
    harness: Harness, option: str, value: object
) -> None:
    _, endpoint = harness.echo()
    options = LIMITS | {"service": "ofl-echo", "deadline_ns": soon()} | {option: value}
    with pytest.raises(ValueError, match=option.removesuffix("_file")):
        connect(endpoint, **options)  # type: ignore[arg-type]


def test_the_largest_queue_that_can_be_asked_for_cuts_nobody_off(harness: Harness) -> None:
    _, endpoint = harness.echo(max_queued_bytes=(1 << 62) - 1)
    client = harness.client(endpoint)
    body = bytes(1 << 20)
    sequences = [client.submit([body], deadline_ns=soon()) for _ in range(20)]
    assert all(client.wait(sequence, deadline_ns=soon()) == body for sequence in sequences)


FIRST_NS, LAST_NS = -(1 << 63), (1 << 63) - 1
"""The moments that the library's 64 bits hold."""
PAST = [FIRST_NS - 1, LAST_NS + 1, (1 << 64) + LAST_NS]
"""Those that they do not, which ctypes would make others of: one in the past of one to come."""
Waits = Callable[[Client, Server, int], object]
CLIENT_WAITS: dict[str, Waits] = {
    "submit": lambda client, _, deadline_ns: client.submit([b"x"], deadline_ns=deadline_ns),
    "wait": lambda client, _, deadline_ns: client.wait(1, deadline_ns=deadline_ns),
    "settled": lambda client, _, deadline_ns: client.settled(1, deadline_ns=deadline_ns),
}
SERVER_WAITS: dict[str, Waits] = {
    "next_event": lambda _, server, deadline_ns: server.next_event(deadline_ns=deadline_ns),
    "idle": lambda _, server, deadline_ns: server.idle(Buffer(1), deadline_ns=deadline_ns),
}


@pytest.mark.parametrize("deadline_ns", PAST)
@pytest.mark.parametrize("wait", CLIENT_WAITS | SERVER_WAITS)
def test_a_deadline_that_is_no_moment_is_refused_by_every_wait(
    harness: Harness, wait: str, deadline_ns: int
) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    with pytest.raises(ValueError, match="deadline_ns must fit into 64 bits"):
        (CLIENT_WAITS | SERVER_WAITS)[wait](client, server, deadline_ns)


def test_the_last_moment_is_waited_for_and_the_first_is_not(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint, deadline_ns=LAST_NS)
    assert server.next_event(deadline_ns=LAST_NS) is not None  # that it connected
    assert server.next_event(deadline_ns=FIRST_NS) is None
    sequence = client.submit([b"x"], deadline_ns=LAST_NS)
    with pytest.raises(DeadlineError):
        client.wait(sequence, deadline_ns=FIRST_NS)
    request = take(server)
    assert server.reply(request.connection, request.sequence, [b"y"])
    assert client.wait(sequence, deadline_ns=LAST_NS) == b"y"
    with pytest.raises(DeadlineError):
        harness.client(endpoint, deadline_ns=FIRST_NS)


@pytest.mark.parametrize("beside", [1 << 64, -(1 << 64), 1 << 65])
def test_no_other_number_is_taken_for_a_call_or_a_connection(harness: Harness, beside: int) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    sequence = client.submit([b"x"], deadline_ns=soon())
    request = take(server)
    for of_client in (
        lambda: client.wait(sequence + beside, deadline_ns=soon()),
        lambda: client.cancel(sequence + beside),
        lambda: server.reply(request.connection, request.sequence + beside, [b"y"]),
    ):
        with pytest.raises(ValueError, match="sequence must be from 0 to"):
            of_client()
    for of_server in (
        lambda: server.reply(request.connection + beside, request.sequence, [b"y"]),
        lambda: server.disconnect(request.connection + beside, "enough"),
    ):
        with pytest.raises(ValueError, match="connection must be from 0 to"):
            of_server()
    assert server.reply(request.connection, request.sequence, [b"z"])
    assert client.wait(sequence, deadline_ns=soon()) == b"z"


def test_the_largest_numbers_name_no_call_and_no_connection(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint)
    largest = (1 << 64) - 1
    with pytest.raises(CancelledError):
        client.wait(largest, deadline_ns=soon())
    assert client.cancel(largest)
    assert not server.reply(largest, largest, [b"y"])
    server.disconnect(largest, "harmless")
    assert client.alive


def test_a_buffer_has_a_size_that_the_library_can_say() -> None:
    for nbytes in (-1, 0, 1 << 63, (1 << 64) + 1):
        with pytest.raises(ValueError, match="at least one byte and less than 2"):
            Buffer(nbytes)
    with pytest.raises(TransportError, match="cannot allocate"):
        Buffer((1 << 63) - 1)


@pytest.mark.parametrize(("offset", "nbytes"), [(-1, 1), (1 << 64, 1), (0, (1 << 64) + 1), (8, 1), (0, 0)])
def test_a_range_lies_in_its_buffer(offset: int, nbytes: int) -> None:
    with pytest.raises(ValueError, match="do not lie in a buffer of 8"):
        Buffer(8).range(offset, nbytes)


@pytest.mark.parametrize("beyond", [-1, 1 << 63, 1 << 64])
def test_a_range_that_somebody_made_is_never_taken_for_another(harness: Harness, beyond: int) -> None:
    buffer = Buffer(8)
    with pytest.raises(ValueError, match="offset must be from 0 to"):
        Range(buffer, beyond, 1)
    with pytest.raises(ValueError, match="nbytes must be from 0 to"):
        Range(buffer, 0, beyond)
    _, endpoint = harness.echo()
    client = harness.client(endpoint)
    client.register(buffer)
    largest = (1 << 63) - 1
    for offset, nbytes in ((largest, 1), (1, largest), (largest, largest)):
        with pytest.raises(ValueError, match="the range is not inside it"):
            client.submit([b"x"], deadline_ns=soon(), into=Range(buffer, offset, nbytes))


def test_the_longest_spans_are_waited_for(harness: Harness) -> None:
    longest = (1 << 63) - 1
    _, endpoint = harness.echo(handshake_ns=longest, frame_ns=longest)
    client = harness.client(endpoint, spin_ns=longest)
    assert client.call([b"x"], deadline_ns=soon()) == b"x"
    with pytest.raises(ValueError, match="loss_ns must be at least twice heartbeat_ns and at most 600 s"):
        harness.client(endpoint, loss_ns=longest)
