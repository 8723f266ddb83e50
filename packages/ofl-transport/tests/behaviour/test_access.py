"""Who may connect: with a key both ends prove that they hold it, on every wire, or there is no connection."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from access_tools import KEY, OTHER_KEY, key_file
from ofl.errors import ConnectRefusedError, DeadlineError, EndpointError, PeerLostError, TransportError
from transport_backends import only_on
from transport_frames import connect_frame, finish
from transport_harness import Harness
from transport_times import after, eventually, soon

STRANGER = 54321
"""The number of a user who is not there."""


@contextlib.contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Inside, this process is of that user."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.smoke
def test_both_ends_with_the_same_key_connect_and_say_so(harness: Harness, tmp_path: Path) -> None:
    key = key_file(tmp_path)
    server, endpoint = harness.echo(key_file=key)
    client = harness.client(endpoint, key_file=key)
    assert client.peer.authenticated
    assert client.call([b"proved"], deadline_ns=soon()) == b"proved"
    assert server.counters()["auth_failures"] == 0


def test_a_newline_at_the_end_of_a_key_file_is_not_the_keys(harness: Harness, tmp_path: Path) -> None:
    _, endpoint = harness.echo(key_file=key_file(tmp_path))
    client = harness.client(endpoint, key_file=key_file(tmp_path, KEY + b"\n"))
    assert client.call([b"proved"], deadline_ns=soon()) == b"proved"


def test_without_a_key_nobody_claims_to_be_authenticated(harness: Harness) -> None:
    _, endpoint = harness.echo()
    assert not harness.client(endpoint).peer.authenticated


def test_another_key_is_refused_and_counted(harness: Harness, tmp_path: Path) -> None:
    server, endpoint = harness.listening(key_file=key_file(tmp_path))
    with pytest.raises(ConnectRefusedError, match="another key"):
        harness.client(endpoint, key_file=key_file(tmp_path, OTHER_KEY))
    assert server.counters()["auth_failures"] == 1
    assert server.counters()["accepted"] == 0
    assert server.next_event(deadline_ns=0) is None, "its consumer never hears of it"


def test_no_downgrade_where_only_the_server_has_a_key(harness: Harness, tmp_path: Path) -> None:
    server, endpoint = harness.listening(key_file=key_file(tmp_path))
    with pytest.raises(ConnectRefusedError, match="wants proof"):
        harness.client(endpoint)
    assert server.counters()["auth_failures"] == 1
    assert server.counters()["accepted"] == 0


def test_no_downgrade_where_only_the_client_has_a_key(harness: Harness, tmp_path: Path) -> None:
    server, endpoint = harness.listening()
    with pytest.raises(ConnectRefusedError, match="has no key file"):
        harness.client(endpoint, key_file=key_file(tmp_path))
    assert server.counters()["accepted"] == 0


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o622])
def test_a_key_file_that_others_may_use_is_refused_by_both_ends(
    harness: Harness, tmp_path: Path, mode: int
) -> None:
    _, endpoint = harness.echo()
    key = key_file(tmp_path, mode=mode)
    with pytest.raises((ValueError, TransportError), match=rf"mode 0{mode:o}.*chmod 600"):
        harness.server(key_file=key)
    with pytest.raises((ValueError, TransportError), match=rf"mode 0{mode:o}.*chmod 600"):
        harness.client(endpoint, key_file=key)


def test_a_key_file_that_is_none_is_refused_by_name(harness: Harness, tmp_path: Path) -> None:
    os.symlink(key_file(tmp_path), tmp_path / "link")
    cases = {
        tmp_path / "missing": "does not exist",
        tmp_path / "link": "symbolic link",
        tmp_path: "not a regular file",
        key_file(tmp_path, b"short"): "holds 5 bytes",
        key_file(tmp_path, b"l" * 1025): "more than the 1024 bytes",
        key_file(tmp_path, b""): "holds 0 bytes",
    }
    for path, clause in cases.items():
        with pytest.raises((ValueError, TransportError), match=clause) as caught:
            harness.server(key_file=path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("make", "clause"),
    [
        (lambda folder: folder / "missing", "does not exist"),
        (lambda folder: key_file(folder, b""), "holds 0 bytes"),
        (lambda folder: key_file(folder, mode=0o644), "chmod 600"),
    ],
    ids=["missing", "empty", "open to others"],
)
def test_a_client_judges_its_key_file_before_it_connects(
    harness: Harness, tmp_path: Path, make: Callable[[Path], Path], clause: str
) -> None:
    listener, endpoint = harness.listener()
    key = make(tmp_path)
    with pytest.raises((ValueError, TransportError), match=clause) as caught:
        harness.client(endpoint, key_file=key)
    assert str(key) in str(caught.value)
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):  # what connected would wait here, also if it has hung up
        listener.accept()
    listener.close()
    with pytest.raises((ValueError, TransportError), match=clause):  # also where nobody listens
        harness.client(endpoint, key_file=key)


@only_on(lambda backend: backend.name != "shm")
def test_an_address_that_fails_again_and_again_is_shut_out_for_a_while(
    harness: Harness, tmp_path: Path
) -> None:
    key = key_file(tmp_path)
    server, endpoint = harness.echo(key_file=key)
    inside = harness.client(endpoint, key_file=key)
    wrong = key_file(tmp_path, OTHER_KEY)
    for _ in range(5):
        with pytest.raises(ConnectRefusedError, match="another key"):
            harness.client(endpoint, key_file=wrong)
    with pytest.raises((ConnectRefusedError, PeerLostError)):
        harness.client(endpoint, key_file=key)  # the right one: its address is shut out all the same
    counters = server.counters()
    assert (counters["auth_failures"], counters["auth_limited"]) == (5, 1)
    assert inside.call([b"who is in stays in"], deadline_ns=soon()) == b"who is in stays in"

    def let_in() -> bool:
        try:
            harness.client(endpoint, key_file=key)
        except (ConnectRefusedError, PeerLostError):
            return False
        return True

    eventually(let_in, "after a second it is let in again")


def test_a_server_without_a_key_shuts_nobody_out_who_asks_it_for_proof(
    harness: Harness, tmp_path: Path
) -> None:
    server, endpoint = harness.echo()
    for _ in range(8):
        with pytest.raises(ConnectRefusedError, match="has no key file"):
            harness.client(endpoint, key_file=key_file(tmp_path))
    assert harness.client(endpoint).call([b"let in"], deadline_ns=soon()) == b"let in"
    counters = server.counters()
    assert (counters["auth_failures"], counters["auth_limited"]) == (8, 0)


@only_on(lambda backend: backend.name == "shm")
def test_a_process_of_this_host_is_never_shut_out(harness: Harness, tmp_path: Path) -> None:
    key = key_file(tmp_path)
    server, endpoint = harness.echo(key_file=key)
    for _ in range(8):
        with pytest.raises(ConnectRefusedError, match="another key"):
            harness.client(endpoint, key_file=key_file(tmp_path, OTHER_KEY))
    assert harness.client(endpoint, key_file=key).call([b"in"], deadline_ns=soon()) == b"in"
    counters = server.counters()
    assert (counters["auth_failures"], counters["auth_limited"]) == (8, 0)


@only_on(lambda backend: backend.name == "shm")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user and come back")
@pytest.mark.parametrize(("user", "crosses"), [(STRANGER, False), (STRANGER + 1, True), (0, False)])
def test_a_client_tells_a_server_of_another_user_nothing_unless_it_is_root(
    harness: Harness, user: int, crosses: bool
) -> None:
    with acting_as(STRANGER):
        listener, endpoint = harness.listener()  # whoever is first has the name
    clause = f"is served by user {STRANGER}, and this process is of user {user}: only root crosses users"
    expected = (ConnectRefusedError, clause) if crosses else (DeadlineError, "did not answer")
    with acting_as(user), pytest.raises(expected[0], match=expected[1]):
        harness.client(endpoint, deadline_ns=soon() if crosses else after(0.2))
    assert (finish(listener.accept()[0]) == b"") is crosses


@only_on(lambda backend: backend.name != "shm")
def test_only_addresses_on_the_list_may_connect(harness: Harness) -> None:
    place = harness.backend.fresh()
    own = place.split("//")[1].rsplit(":", 1)[0]
    shut, shut_endpoint = harness.listening(allowed=["203.0.113.0/24", "2001:db8::/32"])
    with pytest.raises((ConnectRefusedError, PeerLostError)):
        harness.client(shut_endpoint)
    eventually(lambda: shut.counters()["not_allowed"] == 1, "it is counted")
    assert shut.counters()["accepted"] == 0
    opened, endpoint = harness.echo(allowed=["203.0.113.0/24", own])
    assert harness.client(endpoint).call([b"on the list"], deadline_ns=soon()) == b"on the list"
    assert opened.counters()["not_allowed"] == 0


@pytest.mark.parametrize("rule", ["10.0.0.0/33", "10.0.0.1/24", "host.example", "", "10.0.0", "::1/129"])
def test_a_rule_that_cannot_be_is_refused_by_name(harness: Harness, rule: str) -> None:
    with pytest.raises(ValueError, match=rf"allowed address '{rule}'"):
        harness.server(allowed=["10.0.0.0/8", rule])


@only_on(lambda backend: backend.name != "shm")
def test_wildcards_are_refused_unless_allowed(harness: Harness) -> None:
    scheme = harness.backend.name
    for wildcard in ("0.0.0.0", "[::]"):
        with pytest.raises(EndpointError, match="every interface"):
            harness.server().listen(f"{scheme}://{wildcard}:0")


def test_a_flood_of_wrong_keys_never_disturbs_who_is_in(harness: Harness, tmp_path: Path) -> None:
    key = key_file(tmp_path)
    server, endpoint = harness.echo(key_file=key)
    with harness.busy_client(endpoint, key_file=key) as served:
        for _ in range(100):
            connection = harness.raw(endpoint, connect_frame(transport=harness.backend.number))
            finish(connection)
        eventually(lambda: served() > 20, "the client is served all the while")
    counters = server.counters()
    assert counters["auth_failures"] + counters["auth_limited"] == 100
    assert counters["accepted"] == 1
