"""Coming back: one attempt for each delay, no storm on a peer that flaps, and a new life is told from the old one."""

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ofl.calls import Calls
from ofl.client import connect
from ofl.contract.records import Buffer
from ofl.errors import ClosedError, ConnectRefusedError, EndpointError, PeerLostError
from ofl.interface import ClientTransport, Peer
from ofl.reconnect import JITTER, Backoff, NotYetError, Reconnector
from transport_harness import Harness
from transport_times import eventually, soon

MS = 1_000_000
ENDPOINT = "tcp://10.0.0.1:7"


@given(st.integers(1, 10**9), st.integers(0, 20), st.integers(0, 2**32))
def test_delays_double_to_the_cap_within_the_jitter(first_ns: int, doublings: int, seed: int) -> None:
    backoff = Backoff(first_ns, first_ns << doublings, seed=seed)
    for step in range(doublings + 3):
        ideal = min(first_ns << step, backoff.max_ns)
        delay = backoff.next_ns()
        assert int(ideal * (1 - JITTER)) <= delay <= min(ideal * (1 + JITTER), backoff.max_ns)
    backoff.reset()
    assert backoff.next_ns() <= first_ns * (1 + JITTER)


def test_a_seed_gives_the_same_delays_again_and_another_seed_others() -> None:
    def delays(seed: int) -> list[int]:
        backoff = Backoff(100 * MS, 10_000 * MS, seed=seed)
        return [backoff.next_ns() for _ in range(8)]

    assert delays(1) == delays(1)
    assert delays(1) != delays(2)


@pytest.mark.parametrize(("first_ns", "max_ns"), [(0, 10), (-1, 10), (11, 10)])
def test_delays_that_make_no_sense_are_refused(first_ns: int, max_ns: int) -> None:
    with pytest.raises(ValueError, match="positive and rising"):
        Backoff(first_ns, max_ns)


class FakeClient(Calls):
    """A connection that is alive until the test says otherwise."""

    def __init__(self, boot_nonce: int) -> None:
        self.peer = Peer(ENDPOINT, "echo", 1, boot_nonce, 1 << 20)
        self.alive, self.closed = True, 0

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        raise AssertionError("the reconnector sends nothing")

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        raise AssertionError("the reconnector waits for nothing")

    def cancel(self, sequence: int) -> None:
        raise AssertionError("the reconnector has no calls")

    def close(self) -> None:
        self.alive = False
        self.closed += 1


class World:
    """A peer that lives and dies, and the clock of it all.  took_ns: how long an attempt lasts."""

    def __init__(self) -> None:
        self.now_ns, self.took_ns = 1_000 * MS, 0
        self.boot_nonce: int | None = 1
        self.attempts: list[dict[str, object]] = []
        self.heard: list[tuple[ClientTransport, bool]] = []
        self.reconnector = Reconnector(
            ENDPOINT,
            service="echo",
            version_min=1,
            version_max=3,
            max_frame_bytes=4096,
            connect=self.connect,
            backoff=Backoff(100 * MS, 1_000 * MS, seed=7),
            connected=lambda client, new_life: self.heard.append((client, new_life)),
            clock_ns=lambda: self.now_ns,
        )

    def connect(self, endpoint: str, **options: object) -> FakeClient:
        self.attempts.append({"endpoint": endpoint, "at_ns": self.now_ns} | options)
        self.now_ns += self.took_ns
        if self.boot_nonce is None:
            raise ConnectRefusedError("nobody listens there")
        return FakeClient(self.boot_nonce)

    def client(self) -> FakeClient:
        made = self.reconnector.client(deadline_ns=5)
        assert isinstance(made, FakeClient)
        return made


def test_the_live_client_is_given_again_without_an_attempt() -> None:
    world = World()
    client = world.client()
    assert world.client() is client
    asked = {"service": "echo", "version_min": 1, "version_max": 3, "max_frame_bytes": 4096, "deadline_ns": 5}
    assert world.attempts == [{"endpoint": ENDPOINT, "at_ns": 1_000 * MS} | asked]


def test_too_early_is_said_at_once_with_the_time_left() -> None:
    world = World()
    world.boot_nonce = None
    with pytest.raises(ConnectRefusedError):
        world.client()
    with pytest.raises(NotYetError, match="the next attempt may be in 0") as caught:
        world.client()
    assert isinstance(caught.value, PeerLostError)
    assert 80 * MS <= caught.value.left_ns <= 120 * MS
    assert len(world.attempts) == 1
    world.now_ns += caught.value.left_ns
    with pytest.raises(ConnectRefusedError):
        world.client()
    assert len(world.attempts) == 2


def test_a_dead_peer_gets_one_attempt_for_each_delay_however_often_it_is_asked_for() -> None:
    world = World()
    world.boot_nonce = None
    for _ in range(10_000):  # ten seconds, a thousand questions each
        with pytest.raises((ConnectRefusedError, NotYetError)):
            world.client()
        world.now_ns += MS
    # 0.1 + 0.2 + 0.4 + 0.8 s, then once a second: 4 attempts in 1.5 s, some 9 in the rest, jitter on each.
    assert 11 <= len(world.attempts) <= 16


def test_the_delay_is_counted_from_the_end_of_an_attempt() -> None:
    world = World()
    world.boot_nonce, world.took_ns = None, 3_000 * MS
    with pytest.raises(ConnectRefusedError):
        world.client()
    with pytest.raises(NotYetError):
        world.client()


def test_a_peer_that_accepts_and_dies_is_not_stormed() -> None:
    world = World()
    for _ in range(10_000):
        try:
            world.client().alive = False
        except NotYetError:
            world.now_ns += MS
    assert len(world.attempts) <= 16


def test_a_connection_that_lived_earns_an_attempt_at_once_and_the_first_delay() -> None:
    world = World()
    client = world.client()
    world.now_ns += 1_001 * MS
    client.alive = False
    again = world.client()
    assert again is not client
    assert client.closed == 1
    again.alive = False
    with pytest.raises(NotYetError) as caught:
        world.client()
    assert caught.value.left_ns <= 120 * MS


def test_a_new_life_of_the_peer_is_told_from_the_old_one() -> None:
    world = World()
    lives = []
    for nonce in (1, 1, 2, 1):
        world.boot_nonce = nonce
        client = world.client()
        lives.append((world.heard[-1], world.reconnector.lives))
        assert world.heard[-1][0] is client
        client.alive = False
        world.now_ns += 2_000 * MS
    # Nonce 1 after nonce 2 is another life again: nothing is kept of what once answered there.
    assert [(new_life, count) for (_, new_life), count in lives] == [
        (True, 1),
        (False, 1),
        (True, 2),
        (True, 3),
    ]


def test_what_fails_while_it_is_connected_closes_the_client_and_counts_as_an_attempt() -> None:
    world = World()

    def fail(_client: ClientTransport, _new_life: bool) -> None:
        raise PeerLostError("died while a buffer was registered")

    world.reconnector._connected = fail
    with pytest.raises(PeerLostError, match="died while"):
        world.client()
    with pytest.raises(NotYetError):
        world.client()
    assert world.reconnector.lives == 0


def test_after_close_there_is_no_client() -> None:
    world = World()
    with world.reconnector:
        client = world.client()
    assert client.closed == 1
    world.reconnector.close()
    with pytest.raises(ClosedError):
        world.client()


def test_an_endpoint_that_nobody_can_connect_to_is_refused_at_once() -> None:
    options = {"service": "echo", "version_min": 1, "version_max": 1, "max_frame_bytes": 4096}
    with pytest.raises(EndpointError, match="port 0"):
        Reconnector("tcp://h:0", connect=connect, backoff=Backoff(1, 1), **options)  # type: ignore[arg-type]


def test_it_finds_a_server_that_was_started_again_on_the_same_port(harness: Harness) -> None:
    server, endpoint = harness.echo()
    heard: list[bool] = []
    with Reconnector(
        endpoint,
        service="ofl-echo",
        version_min=1,
        version_max=1,
        max_frame_bytes=1 << 20,
        connect=connect,
        backoff=Backoff(MS, 20 * MS),
        connected=lambda _client, new_life: heard.append(new_life),
    ) as reconnector:
        first = reconnector.client(deadline_ns=soon())
        assert first.call([b"one"], deadline_ns=soon()) == b"one"
        server.close()
        eventually(lambda: not first.alive, "the client notices")
        harness.echo(endpoint)

        def back() -> bool:
            try:
                return reconnector.client(deadline_ns=soon()).call([b"two"], deadline_ns=soon()) == b"two"
            except NotYetError as error:
                time.sleep(error.left_ns / 1e9)
                return False

        eventually(back, "the new server answers")
    assert heard == [True, True]
