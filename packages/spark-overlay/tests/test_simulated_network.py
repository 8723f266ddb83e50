"""The simulated network keeps its times, and loses, freezes and ends connections as a real one would."""

import pytest
from ofl.contract.records import Buffer
from ofl.errors import CancelledError, ConnectRefusedError, DeadlineError, PeerLostError
from spark_overlay.simulation.clock import MS, SimulatedClock
from spark_overlay.simulation.network import Network, NetworkTransport

LATENCY_NS, WORK_NS = MS, 2 * MS
BYTES_PER_US = 10


class EchoHost:
    """Answers every message with itself; keeps who came and went."""

    def __init__(self) -> None:
        self.lives = 1
        self.here: set[int] = set()
        self.times: list[tuple[int, int]] = []

    def restart(self, now_ns: int) -> None:
        self.lives += 1
        self.here.clear()

    def connected(self, connection: int) -> None:
        self.here.add(connection)

    def disconnected(self, connection: int, reason: str) -> None:
        self.here.remove(connection)

    def receive(self, connection: int, body: Buffer, received_ns: int, finished_ns: int) -> bytes:
        assert connection in self.here, "a message of a connection that is gone"
        self.times.append((received_ns, finished_ns))
        return bytes(body)


class Rig:
    def __init__(self) -> None:
        self.clock, self.host = SimulatedClock(), EchoHost()
        self.network = Network(
            self.clock,
            self.host,
            latency_ns=LATENCY_NS,
            bytes_per_us=BYTES_PER_US,
            buffer_bytes=10_000,
            work_ns=WORK_NS,
            loss_ns=50 * MS,
            departure_ns=5 * MS,
        )

    def connect(self, patience_ns: int = 100 * MS) -> NetworkTransport:
        return self.network.connect(
            "tcp://worker:1",
            service="dspark",
            version_min=1,
            version_max=1,
            max_frame_bytes=1 << 20,
            deadline_ns=self.clock() + patience_ns,
        )


def test_a_message_takes_its_transfer_two_latencies_and_the_workers_time() -> None:
    rig = Rig()
    transport = rig.connect()
    begun_ns = rig.clock()
    assert transport.call([bytes(6_000), bytes(4_000)], deadline_ns=begun_ns + 100 * MS) == bytes(10_000)
    transfer_ns = 10_000 * 1_000 // BYTES_PER_US
    assert rig.clock() - begun_ns == transfer_ns + 2 * LATENCY_NS + WORK_NS
    assert rig.host.times == [(begun_ns + transfer_ns + LATENCY_NS, rig.clock() - LATENCY_NS)]


def test_the_worker_handles_one_message_at_a_time() -> None:
    rig = Rig()
    transport = rig.connect()
    begun_ns = rig.clock()
    calls = [transport.submit([b"x" * 10], deadline_ns=0) for _ in range(3)]
    transport.wait(calls[2], deadline_ns=begun_ns + 100 * MS)
    assert rig.clock() - begun_ns == 1_000 + 2 * LATENCY_NS + 3 * WORK_NS
    assert transport.wait(calls[0], deadline_ns=0) == b"x" * 10, "it has been here for a while"
    with pytest.raises(CancelledError):
        transport.wait(calls[0], deadline_ns=0)


def test_a_wait_ends_at_its_deadline_and_the_reply_can_be_had_later() -> None:
    rig = Rig()
    transport = rig.connect()
    call = transport.submit([b"x"], deadline_ns=0)
    deadline_ns = rig.clock() + MS
    with pytest.raises(DeadlineError):
        transport.wait(call, deadline_ns=deadline_ns)
    assert rig.clock() == deadline_ns
    assert transport.wait(call, deadline_ns=deadline_ns + 100 * MS) == b"x"


def test_what_does_not_fit_into_the_buffer_waits_for_room() -> None:
    rig = Rig()
    transport = rig.connect()
    transport.submit([bytes(10_000)], deadline_ns=0)
    with pytest.raises(DeadlineError):
        transport.submit([bytes(10_000)], deadline_ns=rig.clock() + 10_000)
    assert transport.alive, "nothing of it has left"
    begun_ns = rig.clock()
    transport.submit([bytes(10_000)], deadline_ns=begun_ns + 100 * MS)
    assert rig.clock() - begun_ns == 10_000 * 1_000 // BYTES_PER_US - 10_000


def test_a_dead_worker_loses_every_connection_and_is_back_after_its_time() -> None:
    rig = Rig()
    transport = rig.connect()
    rig.network.kill_worker(20 * MS)
    assert not transport.alive
    with pytest.raises(PeerLostError):
        transport.submit([b"x"], deadline_ns=0)
    with pytest.raises(ConnectRefusedError):
        rig.connect()
    rig.clock.run_until(rig.clock() + 20 * MS)
    assert rig.connect().alive
    assert rig.host.lives == 2


@pytest.mark.parametrize(("frozen_ms", "lost"), [(40, False), (60, True)])
def test_a_frozen_worker_is_late_or_lost(frozen_ms: int, lost: bool) -> None:
    rig = Rig()
    transport = rig.connect()
    rig.network.freeze_worker(frozen_ms * MS)
    begun_ns = rig.clock()
    call = transport.submit([b"x"], deadline_ns=0)
    if lost:
        with pytest.raises(PeerLostError):
            transport.wait(call, deadline_ns=begun_ns + 100 * MS)
        assert rig.clock() - begun_ns == 50 * MS, "after so much silence"
        assert rig.connect().alive, "a connection that is made after it thawed is not lost"
    else:
        assert transport.wait(call, deadline_ns=begun_ns + 100 * MS) == b"x"
        assert rig.clock() - begun_ns == frozen_ms * MS + WORK_NS + LATENCY_NS


def test_the_worker_notices_late_that_a_client_went() -> None:
    rig = Rig()
    transport = rig.connect()
    transport.close()
    rig.network.notice_departures()
    assert rig.host.here == {transport.connection}
    rig.clock.run_until(rig.clock() + 5 * MS)
    rig.network.notice_departures()
    assert not rig.host.here
