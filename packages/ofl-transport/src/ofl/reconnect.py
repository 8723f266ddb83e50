"""A connection that comes back: when to try again, and whether the peer that answers is still the same one.

`Backoff` is pure.  `Reconnector` owns the client that is there now and when the next attempt may be.  Neither sleeps,
and neither starts a thread: whoever needs the connection asks, and is told at once where there is none.

Theory of operation.  Every attempt, good or bad, moves the time of the next one by a delay of the backoff, so a peer
that accepts and dies is no easier to storm than one that refuses.  A connection that lived for longer than the longest
delay ends the series: the next attempt may follow at once.  Nothing is kept by host and port: what a caller learned
from a peer it must learn again where `connected` says that another life answers.
"""

import random
import time
from collections.abc import Callable

from ofl.endpoint import parse_endpoint
from ofl.errors import ClosedError, EndpointError, PeerLostError
from ofl.interface import ClientTransport, Connect

JITTER = 0.2


class Backoff:
    """Delays from first_ns, doubling to max_ns, each up to JITTER longer or shorter, never over max_ns.

    seed: of the jitter; None: another one in every process, so that many clients do not come at once.
    Raises ValueError for delays that are not positive and rising.
    """

    def __init__(self, first_ns: int, max_ns: int, *, seed: int | None = None) -> None:
        if not 0 < first_ns <= max_ns:
            raise ValueError(f"delays must be positive and rising, not {first_ns} to {max_ns} ns")
        self.first_ns, self.max_ns = first_ns, max_ns
        self._random = random.Random(seed)
        self._next_ns = first_ns

    def next_ns(self) -> int:
        """The next delay."""
        spread = 1 + JITTER * (2 * self._random.random() - 1)
        delay_ns = min(int(self._next_ns * spread), self.max_ns)
        self._next_ns = min(2 * self._next_ns, self.max_ns)
        return delay_ns

    def reset(self) -> None:
        """Begin again with the first delay."""
        self._next_ns = self.first_ns


class NotYetError(PeerLostError):
    """There is no connection, and it is too early for another attempt.  left_ns: until there may be one."""

    def __init__(self, text: str, left_ns: int) -> None:
        super().__init__(text)
        self.left_ns = left_ns


class Reconnector:
    """Gives a live client of one endpoint.  One thread at a time may use it.

    connected: called with each new client before anybody gets it, and whether its peer lives another life than the one
    before: the place to register buffers and to forget what another life said.  What it raises ends the attempt.
    connect: `ofl.client.connect`, with `functools.partial` for options that are not here.  clock_ns: CLOCK_MONOTONIC.

    Raises EndpointError.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        service: str,
        version_min: int,
        version_max: int,
        max_frame_bytes: int,
        connect: Connect,
        backoff: Backoff,
        connected: Callable[[ClientTransport, bool], None] = lambda _client, _new_life: None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        target = parse_endpoint(endpoint)
        if not target.connectable:
            raise EndpointError(f"endpoint {endpoint!r}: port 0 can be listened on but not connected to")
        self.endpoint = str(target)
        self._service, self._versions, self._max_frame_bytes = (
            service,
            (version_min, version_max),
            max_frame_bytes,
        )
        self._connect, self._backoff, self._connected = connect, backoff, connected
        self._clock_ns = clock_ns
        self._client: ClientTransport | None = None
        self._boot_nonce: int | None = None
        self._not_before_ns: int | None = None
        self._connected_ns = 0
        self._closed = False
        self.lives = 0
        """How many lives of the peer have answered so far, one after the other."""

    def client(self, *, deadline_ns: int) -> ClientTransport:
        """The client that is alive, or a new one; at most one attempt for each delay of the backoff.

        Raises NotYetError at once where it is too early for an attempt, what `connect` and `connected` raise where one
        failed, and ClosedError.
        """
        if self._closed:
            raise ClosedError(f"{self.endpoint}: closed by this side")
        if self._client is not None and self._client.alive:
            return self._client
        self._drop()
        now_ns = self._clock_ns()
        if self._not_before_ns is not None and now_ns < self._not_before_ns:
            left_ns = self._not_before_ns - now_ns
            text = f"{self.endpoint}: no connection; the next attempt may be in {left_ns / 1e9:.3f} s"
            raise NotYetError(text, left_ns)
        return self._attempt(deadline_ns)

    def close(self) -> None:
        """Close the client that is there; no other will come.  Twice is harmless."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def __enter__(self) -> "Reconnector":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        client.close()
        if self._clock_ns() - self._connected_ns > self._backoff.max_ns:
            self._backoff.reset()

    def _attempt(self, deadline_ns: int) -> ClientTransport:
        try:
            client = self._connect(
                self.endpoint,
                service=self._service,
                version_min=self._versions[0],
                version_max=self._versions[1],
                max_frame_bytes=self._max_frame_bytes,
                deadline_ns=deadline_ns,
            )
        finally:
            # Counted from its end: an attempt that took long must not be followed by the next at once.
            self._connected_ns = self._clock_ns()
            self._not_before_ns = self._connected_ns + self._backoff.next_ns()
        new_life = client.peer.boot_nonce != self._boot_nonce
        try:
            self._connected(client, new_life)
        except BaseException:
            client.close()
            raise
        self._boot_nonce = client.peer.boot_nonce
        self.lives += new_life
        self._client = client
        return client
