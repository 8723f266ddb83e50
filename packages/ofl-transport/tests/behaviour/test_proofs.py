"""The challenge and the proofs, frame by frame, against plain sockets that lie, replay and sit in between."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest
from access_tools import KEY, answered, challenged, client_proof, key_file, offer, server_proof
from ofl.errors import ConnectRefusedError, PeerLostError
from ofl.interface import Connected
from transport_backends import only_on
from transport_frames import (
    ACCEPT_TYPE,
    CHALLENGE_TYPE,
    CONNECT_TYPE,
    REFUSE_TYPE,
    accept_body,
    connect_frame,
    finish,
    frame,
    read_frame,
)
from transport_harness import Harness
from transport_times import soon


def test_a_proof_computed_from_the_document_is_accepted_and_the_servers_is_right(
    harness: Harness, tmp_path: Path
) -> None:
    _, endpoint = harness.echo(key_file=key_file(tmp_path))
    connect = offer(harness, bytes(range(32)))
    connection, challenge = challenged(harness, endpoint, connect)
    accepted, body = answered(connection, client_proof(KEY, connect, challenge))
    assert accepted
    assert body[24:] == server_proof(KEY, connect, challenge, body)


def test_no_two_challenges_are_alike_and_a_replayed_proof_is_refused(
    harness: Harness, tmp_path: Path
) -> None:
    server, endpoint = harness.echo(key_file=key_file(tmp_path))
    connect = offer(harness, bytes(range(32)))
    first, challenge = challenged(harness, endpoint, connect)
    proof = client_proof(KEY, connect, challenge)
    assert answered(first, proof)[0]
    again, other = challenged(harness, endpoint, connect)
    assert other != challenge
    accepted, body = answered(again, proof)
    assert not accepted
    assert b"proof is wrong" in body
    assert server.counters()["auth_failures"] == 1


def test_a_proof_of_another_offer_is_refused(harness: Harness, tmp_path: Path) -> None:
    _, endpoint = harness.echo(key_file=key_file(tmp_path))
    connect = offer(harness, bytes(32))
    for at in (8, 16, 127):  # the limits, the heartbeat, the nonce
        connection, challenge = challenged(harness, endpoint, connect)
        said = bytearray(connect)
        said[at] ^= 1
        assert not answered(connection, client_proof(KEY, bytes(said), challenge))[0]
    connection, challenge = challenged(harness, endpoint, connect)
    assert not answered(connection, bytes(32))[0]


def test_the_servers_own_proof_is_none_of_the_client(harness: Harness, tmp_path: Path) -> None:
    _, endpoint = harness.echo(key_file=key_file(tmp_path))
    connect = offer(harness, bytes(32))
    connection, challenge = challenged(harness, endpoint, connect)
    reflected = server_proof(KEY, connect, challenge, accept_body(transport=harness.backend.number))
    assert not answered(connection, reflected)[0]


def test_before_the_proof_a_server_takes_nothing_else(harness: Harness, tmp_path: Path) -> None:
    server, endpoint = harness.listening(key_file=key_file(tmp_path))
    connect = offer(harness, bytes(32))
    for early in (
        frame(4, sequence=1, body=b"a request"),
        frame(7),
        frame(11, body=bytes(16)),
        connect_frame(),
    ):
        connection, _ = challenged(harness, endpoint, connect)
        connection.sendall(early)
        assert finish(connection) == b""
    assert server.counters()["garbage"] == 4
    assert server.next_event(deadline_ns=0) is None


def played(harness: Harness, tmp_path: Path, answer: bytes | None, authentication: int = 1) -> None:
    """Connects with a key to a server that a plain socket plays; its accept frame has this mac (None: no challenge)."""
    listener, endpoint = harness.listener()

    def play() -> None:
        connection, _ = listener.accept()
        with connection:
            read_frame(connection)
            if answer is not None:
                connection.sendall(frame(CHALLENGE_TYPE, body=bytes(32)))
                read_frame(connection)
            body = accept_body(
                transport=harness.backend.number, authentication=authentication, mac=answer or bytes(32)
            )
            connection.sendall(frame(ACCEPT_TYPE, body=body))
            finish(connection)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        harness.client(endpoint, key_file=key_file(tmp_path))
    finally:
        thread.join()


def test_a_server_that_cannot_prove_the_key_is_refused(harness: Harness, tmp_path: Path) -> None:
    with pytest.raises(ConnectRefusedError, match="does not hold the key"):
        played(harness, tmp_path, answer=b"\x01" * 32)


def test_a_server_that_accepts_without_a_challenge_is_refused(harness: Harness, tmp_path: Path) -> None:
    with pytest.raises(PeerLostError, match="type is no answer to what was sent"):
        played(harness, tmp_path, answer=None)


def test_a_server_that_says_that_no_proof_was_asked_for_is_refused(harness: Harness, tmp_path: Path) -> None:
    with pytest.raises(PeerLostError, match=r"accept\.authentication"):
        played(harness, tmp_path, answer=b"\x01" * 32, authentication=0)


def relayed(harness: Harness, server: str, changed: int, at: int) -> str:
    """The endpoint of somebody between a client and a server, who changes a byte of one type of frame on its way."""
    listener, endpoint = harness.listener()

    def forward(source: socket.socket, target: socket.socket) -> None:
        kind, sequence, body = read_frame(source)
        if kind == changed:
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        target.sendall(frame(kind, sequence=sequence, body=body))

    def relay() -> None:
        client, _ = listener.accept()
        with client, harness.raw(server) as behind, contextlib.suppress(EOFError, OSError):
            for _ in range(2):  # connect and challenge, proof and accept
                forward(client, behind)
                forward(behind, client)
            finish(client)

    thread = threading.Thread(target=relay)
    thread.start()
    harness.stack.callback(thread.join)
    return endpoint


@pytest.mark.parametrize("at", [0, 8, 16, 24, 55], ids=["nonce", "frame limit", "calls", "mac", "end"])
def test_an_accept_frame_that_was_changed_on_its_way_is_refused(
    harness: Harness, tmp_path: Path, at: int
) -> None:
    key = key_file(tmp_path)
    _, endpoint = harness.echo(key_file=key)
    between = relayed(harness, endpoint, ACCEPT_TYPE, at)
    with pytest.raises((ConnectRefusedError, PeerLostError), match=r"does not hold the key|accept\."):
        harness.client(between, key_file=key)


@pytest.mark.parametrize("at", [0, 8, 96], ids=["nonce of the process", "frame limit", "nonce"])
def test_an_offer_that_was_changed_on_its_way_is_refused(harness: Harness, tmp_path: Path, at: int) -> None:
    key = key_file(tmp_path)
    server, endpoint = harness.echo(key_file=key)
    with pytest.raises(ConnectRefusedError, match="proof is wrong"):
        harness.client(relayed(harness, endpoint, CONNECT_TYPE, at), key_file=key)
    assert server.counters()["auth_failures"] == 1


@only_on(lambda backend: backend.name == "tcp")
def test_who_changes_nothing_in_between_is_not_noticed(harness: Harness, tmp_path: Path) -> None:
    # The proof is of who speaks and of what they agreed on, not of the way.
    key = key_file(tmp_path)
    _, endpoint = harness.echo(key_file=key)
    assert harness.client(relayed(harness, endpoint, -1, 0), key_file=key).peer.authenticated


def test_the_refusal_names_no_more_than_it_must(harness: Harness, tmp_path: Path) -> None:
    # Who cannot prove the key learns neither the service nor the versions that are served here.
    _, endpoint = harness.listening("secret-service", key_file=key_file(tmp_path))
    kind, _, body = read_frame(
        harness.raw(endpoint, connect_frame("another", transport=harness.backend.number))
    )
    assert kind == REFUSE_TYPE
    assert b"secret" not in body
    assert b"version" not in body


def test_a_server_hears_of_a_client_only_after_its_proof(harness: Harness, tmp_path: Path) -> None:
    key = key_file(tmp_path)
    server, endpoint = harness.listening(key_file=key)
    challenged(harness, endpoint, offer(harness, bytes(32)))
    assert server.next_event(deadline_ns=0) is None
    harness.client(endpoint, key_file=key)
    assert isinstance(server.next_event(deadline_ns=soon()), Connected)
