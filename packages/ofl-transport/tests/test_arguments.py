"""What a caller passes reaches the library as it is, or is refused by name."""

import pytest
from ofl.client import connect
from ofl.server import Server
from transport_harness import Harness
from transport_times import soon

LIMITS = {"version_min": 1, "version_max": 1, "max_frame_bytes": 1 << 20}
CUT = [
    ("service", "ofl-echo\0other"),
    ("service", "\u00e4"),
    ("key_file", "/key\0other"),
    ("spin_ns", 1 << 64),
]
"""What ctypes, or an encoding with replacements, would make another value of."""


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *CUT,
        ("allowed", ["10.0.0.1\0/8"]),
        ("max_queued_bytes", -1),
        ("max_queued_bytes", 1 << 64),
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
    [*CUT, ("heartbeat_ns", (1 << 64) + 50_000_000), ("loss_ns", (1 << 64) + 250_000_000)],
)
def test_an_option_of_a_client_is_never_taken_for_another(
    harness: Harness, option: str, value: object
) -> None:
    _, endpoint = harness.echo()
    options = LIMITS | {"service": "ofl-echo"} | {option: value}
    with pytest.raises(ValueError, match=option.removesuffix("_file")):
        connect(endpoint, deadline_ns=soon(), **options)  # type: ignore[arg-type]


def test_the_largest_queue_that_can_be_asked_for_cuts_nobody_off(harness: Harness) -> None:
    _, endpoint = harness.echo(max_queued_bytes=(1 << 62) - 1)
    client = harness.client(endpoint)
    body = bytes(1 << 20)
    sequences = [client.submit([body], deadline_ns=soon()) for _ in range(20)]
    assert all(client.wait(sequence, deadline_ns=soon()) == body for sequence in sequences)
