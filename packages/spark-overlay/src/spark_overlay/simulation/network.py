"""A network in simulated time between an engine and a worker's host: latency, pace, a queue, and hosts that die.

Owns what a connection of it does at the transport's interface (`NetworkTransport` implements
`ofl.interface.ClientTransport`).  Messages of a connection are handled in order; the worker handles one at a time.

Theory of operation.  The worker handles a message when it is submitted, but in simulated time it does so when the
message has arrived and it is free, and its reply is there one latency later.  Nobody can tell the difference: only
the engine's calls let time pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ofl.calls import Calls
from ofl.contract.records import Buffer
from ofl.errors import CancelledError, ConnectRefusedError, DeadlineError, PeerLostError, TransportError
from ofl.interface import Peer

from spark_overlay.simulation.clock import MS, SimulatedClock

CALLS_MAX = 256
"""Calls open at once on a connection, as the real transport's."""


class WorkerHost(Protocol):
    """The worker's processes, one after the other.  Times are nanoseconds."""

    def restart(self, now_ns: int) -> None:
        """The process dies and another one begins, which knows no connection."""

    def connected(self, connection: int) -> None:
        """A client came."""

    def disconnected(self, connection: int, reason: str) -> None:
        """A client went."""

    def receive(self, connection: int, body: Buffer, received_ns: int, finished_ns: int) -> bytes:
        """The reply to one message, handled between the two times."""


@dataclass
class Network:
    """The network and the worker's host at its other end.

    latency_ns: one way.  bytes_per_us: of what the engine sends.  buffer_bytes: that may wait to be sent.
    work_ns: the worker takes for a message.  loss_ns: silence after which a connection counts as lost.
    departure_ns: after which the worker notices that a client went.
    """

    clock: SimulatedClock
    worker: WorkerHost
    latency_ns: int = MS // 10
    bytes_per_us: int = 50
    buffer_bytes: int = 1 << 14
    work_ns: int = MS // 4
    loss_ns: int = 60 * MS
    departure_ns: int = 0
    max_frame_bytes: int = 1 << 20
    attempts: int = 0
    down_until_ns: int = 0
    worker_idle_ns: int = 0
    _frozen_ns: tuple[int, int] = (0, 0)
    _open: dict[int, "NetworkTransport"] = field(default_factory=dict)
    _departed: list[tuple[int, int]] = field(default_factory=list)

    def connect(
        self,
        endpoint: str,
        *,
        service: str,
        version_min: int,
        version_max: int,
        max_frame_bytes: int,
        deadline_ns: int,
    ) -> "NetworkTransport":
        """As `ofl.client.connect`."""
        self.attempts += 1
        if self.clock() < self.down_until_ns:
            raise ConnectRefusedError(f"{endpoint}: nobody listens there")
        self.wait_until(max(self.clock(), self._frozen_ns[1]) + 2 * self.latency_ns, deadline_ns, "connected")
        self.notice_departures()
        peer = Peer(endpoint, service, version_max, 1, min(max_frame_bytes, self.max_frame_bytes))
        made = NetworkTransport(self, self.attempts, peer)
        self._open[made.connection] = made
        self.worker.connected(made.connection)
        return made

    def kill_worker(self, down_ns: int) -> None:
        """The worker's process dies; nobody listens for so long, then another one does."""
        for transport in list(self._open.values()):
            transport.lose()
        self._departed.clear()
        self._frozen_ns = (0, 0)
        self.worker_idle_ns = 0
        self.down_until_ns = self.clock() + down_ns
        self.worker.restart(self.clock())

    def freeze_worker(self, for_ns: int) -> None:
        """The worker's process stands still for so long; its connections stay open."""
        self._frozen_ns = (self.clock(), self.clock() + for_ns)

    @property
    def connections(self) -> Sequence[int]:
        """Those that the engine's side has open."""
        return tuple(self._open)

    # --- for the connections ---

    def lost_at_ns(self, opened_ns: int) -> int | None:
        """When a frozen worker's connection counts as lost; None where it thaws before, or was not there yet."""
        since, until = self._frozen_ns
        return since + self.loss_ns if until - since > self.loss_ns and opened_ns <= since else None

    def handle(self, connection: int, body: bytes, arrival_ns: int) -> tuple[int, bytes]:
        """When the reply is back, and the reply."""
        self.notice_departures()
        start_ns = max(arrival_ns, self.worker_idle_ns, self._frozen_ns[1])
        self.worker_idle_ns = start_ns + self.work_ns
        reply = self.worker.receive(connection, body, arrival_ns, self.worker_idle_ns)
        return self.worker_idle_ns + self.latency_ns, reply

    def departs(self, connection: int) -> None:
        """The engine's side is closed; the worker will notice."""
        if self._open.pop(connection, None) is not None:
            self._departed.append((self.clock() + self.departure_ns, connection))

    def notice_departures(self) -> None:
        """Tell the worker who went, where it is time."""
        while self._departed and self._departed[0][0] <= self.clock():
            self.worker.disconnected(self._departed.pop(0)[1], "the simulation closed it")

    def wait_until(self, due_ns: int, deadline_ns: int, what: str) -> None:
        """Let time pass until then.  Raises DeadlineError, at the deadline, where that comes first."""
        if due_ns > max(deadline_ns, self.clock()):
            self.clock.run_until(deadline_ns)
            raise DeadlineError(f"not {what} before the deadline")
        self.clock.run_until(due_ns)


class NetworkTransport(Calls):
    """One connection."""

    def __init__(self, network: Network, connection: int, peer: Peer) -> None:
        self.connection = connection
        self._network, self._peer = network, peer
        self._opened_ns = network.clock()
        self._sequence = 0
        self._idle_ns = 0
        self._replies: dict[int, tuple[int, bytes]] = {}
        self._alive = True

    @property
    def peer(self) -> Peer:
        """The other end."""
        return self._peer

    @property
    def alive(self) -> bool:
        """False once the connection is lost or closed."""
        lost_ns = self._network.lost_at_ns(self._opened_ns)
        if self._alive and lost_ns is not None and lost_ns <= self._network.clock():
            self.lose()
        return self._alive

    def lose(self) -> None:
        """The connection is lost."""
        self._alive = False
        self._replies.clear()
        self._network.departs(self.connection)

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        """See `ClientTransport`."""
        self._check()
        network, body = self._network, b"".join(parts)
        assert len(body) <= self._peer.max_frame_bytes, "over the limit that was agreed on"
        if len(self._replies) >= CALLS_MAX:
            raise TransportError(f"{CALLS_MAX} calls are open")
        transfer_ns = len(body) * 1000 // network.bytes_per_us
        room_ns = self._idle_ns + transfer_ns - network.buffer_bytes * 1000 // network.bytes_per_us
        network.wait_until(room_ns, deadline_ns, "sent")
        self._idle_ns = max(self._idle_ns, network.clock()) + transfer_ns
        self._sequence += 1
        self._replies[self._sequence] = network.handle(
            self.connection, body, self._idle_ns + network.latency_ns
        )
        return self._sequence

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        """See `ClientTransport`."""
        self._check()
        if sequence not in self._replies:
            raise CancelledError(f"call {sequence} is not open")
        due_ns, body = self._replies[sequence]
        lost_ns = self._network.lost_at_ns(self._opened_ns)
        if lost_ns is not None and lost_ns <= min(due_ns, deadline_ns):
            self._network.clock.run_until(lost_ns)
            self._check()
        self._network.wait_until(due_ns, deadline_ns, "answered")
        del self._replies[sequence]
        return bytearray(body)

    def cancel(self, sequence: int) -> None:
        """See `ClientTransport`."""
        self._replies.pop(sequence, None)

    def close(self) -> None:
        """Close it; the worker notices a little later."""
        if self._alive:
            self.lose()

    def _check(self) -> None:
        if not self.alive:
            raise PeerLostError("the connection is lost")
