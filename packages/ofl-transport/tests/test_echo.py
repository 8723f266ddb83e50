"""What is TCP's own about listening and connecting: addresses, names, ports; and options that no listener sees."""

from typing import cast

import pytest
from ofl.errors import EndpointError
from ofl.interface import Connected
from transport_harness import Harness, ServerOptions
from transport_times import soon


def test_one_server_serves_several_listeners(harness: Harness) -> None:
    server, first = harness.echo()
    second = server.listen("tcp://127.0.0.2:0")
    third = server.listen("tcp://[::1]:0")
    for endpoint in (first, second, third):
        assert harness.client(endpoint).call([b"here"], deadline_ns=soon()) == b"here"


def test_a_name_resolves_and_bind_chooses_the_address_to_send_from(harness: Harness) -> None:
    server = harness.server()
    port = server.listen("tcp://127.0.0.1:0").rsplit(":", 1)[1]
    client = harness.client(f"tcp://localhost:{port}?bind=127.0.0.9")
    assert client.local_address.startswith("127.0.0.9:")
    connected = server.next_event(deadline_ns=soon())
    assert isinstance(connected, Connected)
    assert connected.peer_address == client.local_address


def test_a_bind_address_of_another_host_is_refused_by_name(harness: Harness) -> None:
    _, endpoint = harness.echo()
    with pytest.raises(EndpointError, match=r"203\.0\.113\.1"):
        harness.client(endpoint + "?bind=203.0.113.1")


@pytest.mark.parametrize("wildcard", ["tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://[::ffff:0.0.0.0]:0"])
def test_wildcards_are_refused_unless_allowed(harness: Harness, wildcard: str) -> None:
    with pytest.raises(EndpointError, match="every interface"):
        harness.server().listen(wildcard)


def test_an_allowed_wildcard_serves(harness: Harness) -> None:
    _, endpoint = harness.echo("tcp://0.0.0.0:0", allow_any=True)
    port = endpoint.rsplit(":", 1)[1]
    assert harness.client(f"tcp://127.0.0.3:{port}").call([b"any"], deadline_ns=soon()) == b"any"


def test_an_address_of_another_host_cannot_be_listened_on(harness: Harness) -> None:
    with pytest.raises(EndpointError, match=r"203\.0\.113\.1:0 is not an address of this host"):
        harness.server().listen("tcp://203.0.113.1:0")


def test_an_unknown_host_is_named(harness: Harness) -> None:
    with pytest.raises(EndpointError, match=r"no-such-host\.invalid cannot be resolved"):
        harness.client("tcp://no-such-host.invalid:1", deadline_ns=soon())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("version_min", 7),
        ("max_frame_bytes", 1000),
        ("max_connections", 0),
        ("max_calls", 257),
        ("handshake_ns", 0),
        ("frame_ns", -1),
        ("max_pending", 0),
    ],
)
def test_a_bad_server_option_is_named(harness: Harness, option: str, value: int) -> None:
    with pytest.raises(ValueError, match=option):
        harness.server(**cast(ServerOptions, {option: value}))
