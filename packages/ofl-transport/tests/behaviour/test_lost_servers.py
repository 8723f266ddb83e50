"""A server that is killed or stopped, at every step, is a typed error in time; one that is busy is neither.

Killed: the kernel closes its end at once, so the client learns it at once.  Stopped: only silence tells.
"""

import json
import signal
import threading
import time

import pytest
from ofl.client import Client, connect
from ofl.echo import SERVICE
from ofl.errors import ConnectRefusedError, PeerLostError
from ofl.interface import Request
from ofl.memory import Buffer
from transport_backends import only_on
from transport_frames import HEADER, accept_frame, read_frame
from transport_harness import Harness, freeze, said, tell, thaw
from transport_times import FAST, PATIENT, SCALE, Elapsed, Liveness, eventually, scaled, soon

SLACK_S = 2.0
"""What a busy machine may add: both ends, the keeper thread and the test want a CPU.  Without detection it is 20 s."""

LARGE = 1 << 26


def test_a_server_killed_before_it_accepts_is_lost_at_once(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    freeze(process)
    threading.Timer(scaled(0.1), process.kill).start()
    with Elapsed() as elapsed, pytest.raises((PeerLostError, ConnectRefusedError)):
        harness.client(endpoint)
    assert elapsed.seconds < scaled(0.1 + SLACK_S)


def dies_after(harness: Harness, words: bytes) -> None:
    """A client loses a server at once that says no more than this."""
    listener, endpoint = harness.listener()

    def die() -> None:
        connection, _ = listener.accept()
        with connection:
            read_frame(connection)
            connection.sendall(words)

    thread = threading.Thread(target=die)
    thread.start()
    with Elapsed() as elapsed, pytest.raises(PeerLostError, match="closed the connection"):
        harness.client(endpoint)
    thread.join()
    assert elapsed.seconds < scaled(SLACK_S)


@pytest.mark.parametrize("cut", [0, 10, HEADER.size, HEADER.size + 9, -1])
def test_a_server_that_dies_while_it_negotiates_is_lost_at_once(harness: Harness, cut: int) -> None:
    dies_after(harness, accept_frame(transport=harness.backend.number)[:cut])


@only_on(lambda backend: backend.name != "tcp")
def test_a_server_that_dies_before_its_link_frame_is_lost_at_once(harness: Harness) -> None:
    dies_after(harness, accept_frame(transport=harness.backend.number))


def test_a_killed_server_is_lost_at_once_while_waiting(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint)
    sequence = client.submit([b"!hold"], deadline_ns=soon())
    threading.Timer(scaled(0.1), process.kill).start()
    with Elapsed() as elapsed, pytest.raises(PeerLostError):
        client.wait(sequence, deadline_ns=soon())
    assert elapsed.seconds < scaled(0.1 + SLACK_S)


@pytest.mark.smoke
def test_a_killed_server_is_noticed_while_idle(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint)
    assert client.alive
    process.kill()
    eventually(lambda: not client.alive, "alive turns False", seconds=SLACK_S)


def test_a_frozen_server_is_lost_after_the_loss_limit_while_waiting(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint, **FAST)
    with Elapsed() as elapsed:
        client.call([b"a sign of life"], deadline_ns=soon())  # on a busy host the last one may lie back far
        freeze(process)
        with pytest.raises(PeerLostError, match="no sign of life from the peer"):
            client.call([b"x"], deadline_ns=soon())
    assert scaled(0.5) < elapsed.seconds < scaled(0.5 + SLACK_S)


def test_a_frozen_server_is_lost_after_the_loss_limit_while_sending(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint, max_frame_bytes=LARGE, **FAST)
    freeze(process)
    with Elapsed() as elapsed, pytest.raises(PeerLostError, match="no sign of life from the peer"):
        client.submit([bytes(LARGE)], deadline_ns=soon())
    assert elapsed.seconds < scaled(0.5 + SLACK_S)


def test_a_server_killed_within_a_request_is_lost_at_once(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint, max_frame_bytes=LARGE)
    freeze(process)  # so that the request cannot go through before it dies
    threading.Timer(scaled(0.2), process.kill).start()
    with Elapsed() as elapsed, pytest.raises(PeerLostError):
        client.submit([bytes(LARGE)], deadline_ns=soon())
    assert elapsed.seconds < scaled(0.2 + SLACK_S)


def within_a_reply(
    harness: Harness, number: signal.Signals, liveness: Liveness = PATIENT
) -> tuple[float, str, Client, Buffer]:
    """Sends the signal while a placed reply of 64 MiB arrives: seconds until the loss, its reason, and the memory."""
    buffer = Buffer(LARGE)
    while True:  # until it was in time: the reply may have been quicker
        process, endpoint = harness.served_process()
        client = harness.client(endpoint, max_frame_bytes=LARGE, **liveness)
        client.register(buffer)
        view = buffer.view
        view[0] = view[LARGE - 1] = 0
        outcome: list[object] = []

        def wait(client: Client = client, outcome: list[object] = outcome) -> None:
            try:
                request = [f"!bytes {LARGE}".encode()]
                sequence = client.submit(request, deadline_ns=soon(), into=buffer.range())
                outcome.append(client.wait(sequence, deadline_ns=soon()))
            except PeerLostError as error:
                outcome.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        while view[0] == 0 and not outcome:
            pass
        process.send_signal(number)
        with Elapsed() as elapsed:
            thread.join()
        if isinstance(outcome[0], PeerLostError):
            return elapsed.seconds, str(outcome[0]), client, buffer
        del outcome[:]


def test_a_server_killed_within_a_reply_is_lost_at_once_and_its_memory_is_free(harness: Harness) -> None:
    seconds, reason, client, buffer = within_a_reply(harness, signal.SIGKILL)
    assert seconds < scaled(SLACK_S), reason
    reused_at_once(harness, client, buffer)


def test_a_server_frozen_within_a_reply_is_lost_in_time_and_its_memory_is_free(harness: Harness) -> None:
    seconds, reason, client, buffer = within_a_reply(harness, signal.SIGSTOP, FAST)
    assert "no sign of life from the peer" in reason
    assert seconds < scaled(0.5 + SLACK_S)
    reused_at_once(harness, client, buffer)


def reused_at_once(harness: Harness, lost: Client, buffer: Buffer) -> None:
    """Another connection uses the memory, and nothing of the lost one gets in."""
    assert not lost.alive
    _, endpoint = harness.echo()
    client = harness.client(endpoint)
    client.register(buffer)
    view = buffer.view
    view[:] = bytes(LARGE)
    sequence = client.submit([b"other"], deadline_ns=soon(), into=buffer.range())
    assert bytes(client.wait(sequence, deadline_ns=soon())) == b"other"
    assert bytes(view[:5]) == b"other"
    assert not any(view[5:])


def test_an_idle_peer_is_lost_after_250_ms_of_silence_by_default(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OFL_LOSS_MS", raising=False)
    monkeypatch.delenv("OFL_HEARTBEAT_MS", raising=False)
    process, endpoint = harness.served_process()
    limits = {"version_min": 1, "version_max": 1, "max_frame_bytes": 1 << 20}
    # On an emulated machine every interval is longer by the same factor; else these are the defaults themselves.
    slower = {} if SCALE == 1 else {"heartbeat_ns": int(50e6 * SCALE), "loss_ns": int(250e6 * SCALE)}
    client = connect(endpoint, service=SERVICE, deadline_ns=soon(), **limits, **slower)  # type: ignore[arg-type]
    harness.stack.enter_context(client)
    assert client.alive
    freeze(process)
    with Elapsed() as elapsed:
        eventually(lambda: not client.alive, "alive turns False", seconds=0.5 + SLACK_S)
    limit = f"({0.25 * SCALE:g} s|{250 * SCALE:g} ms)"
    with pytest.raises(PeerLostError, match=f"no sign of life from the peer for {limit}"):
        client.submit([b"x"], deadline_ns=soon())
    assert elapsed.seconds < scaled(0.5 + SLACK_S)


def test_an_idle_connection_lives_far_beyond_the_loss_limit(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint, **FAST)
    time.sleep(scaled(1.5))  # three times the limit, with nothing to say
    assert client.call([b"still here"], deadline_ns=soon()) == b"still here"
    assert process.poll() is None


def test_a_server_whose_consumer_is_busy_keeps_its_connections(harness: Harness) -> None:
    server, endpoint = harness.listening()
    client = harness.client(endpoint, **FAST)
    server.next_event(deadline_ns=soon())
    sequence = client.submit([b"x"], deadline_ns=soon())
    end = time.monotonic() + scaled(1.5)
    while time.monotonic() < end:  # computes, and holds the interpreter lock most of the time
        sum(range(1000))
    request = server.next_event(deadline_ns=soon())
    assert isinstance(request, Request)
    assert server.reply(request.connection, request.sequence, [b"late"])
    assert client.wait(sequence, deadline_ns=soon()) == b"late"


def test_a_server_that_comes_back_at_the_same_place_is_another_life(harness: Harness) -> None:
    process, endpoint = harness.served_process()
    client = harness.client(endpoint)
    assert client.call([b"one life"], deadline_ns=soon()) == b"one life"
    process.kill()
    process.wait()
    _, again = harness.served_process(endpoint)
    assert again == endpoint
    with pytest.raises(PeerLostError):
        client.call([b"to the dead"], deadline_ns=soon())
    other = harness.client(endpoint)
    assert other.peer.boot_nonce != client.peer.boot_nonce
    assert other.call([b"another life"], deadline_ns=soon()) == b"another life"
    assert json.loads(other.call([b"!counters"], deadline_ns=soon()))["accepted"] == 1


def test_two_that_were_stopped_together_keep_their_connection(harness: Harness) -> None:
    server, endpoint = harness.served_process()
    client = harness.peer_process("client", endpoint, "call", str(FAST["loss_ns"]))
    assert said(client, "connected") == ""
    for process in (client, server):
        freeze(process)
    time.sleep(scaled(1.5))  # three times the limit
    for process in (server, client):
        thaw(process)
    tell(client, "go")
    assert said(client, "done") == ""
