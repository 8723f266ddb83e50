"""A transport without a network: requests are answered at once by a function, faults are switches.

Implements `ofl.interface.ClientTransport` and a `connect` for it.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ofl.calls import Calls
from ofl.contract.records import Buffer
from ofl.errors import CancelledError, ConnectRefusedError, DeadlineError, PeerLostError
from ofl.interface import Peer

Answer = Callable[[bytes], bytes]


class SimulatedTransport(Calls):
    """One connection.

    silent: replies do not come (they are kept and come once it is False again).  stuck: nothing can be sent.
    change: applied to every reply.  cancelled: sequences that were cancelled.
    """

    def __init__(self, endpoint: str, answer: Answer, max_frame_bytes: int) -> None:
        self._peer = Peer(endpoint, "dspark", 1, 7, max_frame_bytes, wire="simulated")
        self._answer = answer
        self._sequences = itertools.count(1)
        self._replies: dict[int, bytearray] = {}
        self._alive = True
        self.silent = False
        self.stuck = False
        self.closed = False
        self.change: Answer = bytes
        self.requests: list[bytes] = []
        self.cancelled: set[int] = set()

    @property
    def peer(self) -> Peer:
        return self._peer

    @property
    def alive(self) -> bool:
        return self._alive and not self.closed

    def kill(self) -> None:
        """The peer is gone."""
        self._alive = False

    def submit(self, parts: Sequence[Buffer], *, deadline_ns: int) -> int:
        self._check()
        if self.stuck:
            raise DeadlineError("nothing could be sent before the deadline")
        body = b"".join(parts)
        assert len(body) <= self._peer.max_frame_bytes, "over the limit that was agreed on"
        self.requests.append(body)
        sequence = next(self._sequences)
        self._replies[sequence] = bytearray(self.change(self._answer(body)))
        return sequence

    def wait(self, sequence: int, *, deadline_ns: int) -> bytearray:
        self._check()
        if sequence not in self._replies:
            raise CancelledError(f"call {sequence} is not open")
        if self.silent:
            raise DeadlineError(f"call {sequence} did not end before its deadline")
        return self._replies.pop(sequence)

    def cancel(self, sequence: int) -> None:
        self.cancelled.add(sequence)
        self._replies.pop(sequence, None)

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if not self.alive:
            raise PeerLostError("the connection is lost")


@dataclass
class SimulatedWire:
    """Makes connections to one answering function.  refuse: nobody listens."""

    answer: Answer
    max_frame_bytes: int = 1 << 30
    refuse: bool = False
    connections: list[SimulatedTransport] = field(default_factory=list)
    attempts: int = 0

    def connect(
        self,
        endpoint: str,
        *,
        service: str,
        version_min: int,
        version_max: int,
        max_frame_bytes: int,
        deadline_ns: int,
    ) -> SimulatedTransport:
        """As `ofl.client.connect`."""
        self.attempts += 1
        if self.refuse:
            raise ConnectRefusedError(f"{endpoint}: nobody listens there")
        made = self.make(endpoint, min(max_frame_bytes, self.max_frame_bytes))
        self.connections.append(made)
        return made

    def make(self, endpoint: str, max_frame_bytes: int) -> SimulatedTransport:
        """The connection itself."""
        return SimulatedTransport(endpoint, self.answer, max_frame_bytes)
