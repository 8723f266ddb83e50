"""The echo service: what is sent comes back.  For `ofl echo`, benchmarks and tests; owns no socket."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ofl.interface import ClientTransport, Request, ServerTransport

SERVICE = "ofl-echo"
VERSION = 1
MAX_FRAME_BYTES = 1 << 26
_IDLE_NS = 1_000_000_000


def serve_echo(server: ServerTransport, *, stopped: Callable[[], bool]) -> None:
    """Answer every request with its own bytes until `stopped` says so; `server.wake` makes it look at once.

    Raises ClosedError if the server is closed meanwhile.
    """
    while not stopped():
        event = server.next_event(deadline_ns=time.monotonic_ns() + _IDLE_NS)
        if isinstance(event, Request):
            server.reply(event.connection, event.sequence, [event.body])


@dataclass(frozen=True)
class Latency:
    """Percentiles of round trips, in nanoseconds."""

    count: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int

    @classmethod
    def of(cls, samples_ns: Sequence[int]) -> "Latency":
        """Nearest-rank percentiles of at least one sample."""
        ordered = sorted(samples_ns)

        def rank(percent: int) -> int:
            return ordered[math.ceil(percent * len(ordered) / 100) - 1]

        return cls(len(ordered), rank(50), rank(90), rank(99), ordered[-1])


def ping(client: ClientTransport, *, size: int, count: int, timeout_ns: int) -> list[int]:
    """`count` round trips of `size` bytes each, one at a time; their durations in nanoseconds.

    Raises DeadlineError or PeerLostError; ValueError if a reply differs from its request.
    """
    payload = bytes(index % 251 for index in range(size))
    parts = [payload]
    samples: list[int] = []
    for _ in range(count):
        begun = time.monotonic_ns()
        reply = client.call(parts, deadline_ns=begun + timeout_ns)
        samples.append(time.monotonic_ns() - begun)
        if reply != payload:
            raise ValueError("the reply differs from the request")
    return samples
