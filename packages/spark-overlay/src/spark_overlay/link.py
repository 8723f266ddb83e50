"""The connection to the worker, kept up off the round's path.

Owns the connecting thread, the epoch and the backoff.  The round's thread asks `session` for what is
there now and never waits.  Must never be called with a lock held by a round, and never logs once per
round.

States: no session (connecting, or waiting to), session, disabled, paused, closed.  A session ends by `lost`
(the round saw the failure), by the idle check here (nobody was using it), or by `close`.  A HELLO that
can never succeed with this configuration (identity, shape, version, policy) disables the remote for
this engine run, or until operators rearm it; everything else is tried again.  So is a key that the worker does not
share: not a setting is wrong then but a file on one of the hosts, and both can be put right while the engine runs, ours
because it is read at every attempt.
"""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ofl.contract.dspark_v1 import SERVICE, VERSION, HelloReply, Refused
from ofl.contract.records import ContractError
from ofl.errors import TransportError
from ofl.interface import ClientTransport, Connect, Peer

from spark_overlay.backoff import Backoff
from spark_overlay.greeting import (
    DisabledError,
    LinkOptions,
    Session,
    agreed,
    frame_bytes,
    say_goodbye,
    say_hello,
    shape_text,
)
from spark_overlay.round.counters import counter, meanings

log = logging.getLogger(__name__)

IDLE_CHECK_S = 0.25
"""How often a session that nobody may be using is looked at."""
GOODBYE_NS = 500_000_000
CLOSE_JOIN_S = 2.0
"""How long `close` waits for the thread; an attempt to connect ends by its own deadline after that."""


@dataclass
class LinkCounters:
    """Written by either thread under the link's lock."""

    hellos: int = counter("answers to HELLO, refusals included")
    disconnects: int = counter("sessions that were lost or given up")
    connect_failures: int = counter("attempts to connect that brought no session")
    sessions_ordered_off: int = counter("sessions that were ended because operators paused or rearmed")

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Meaning of each counter, for the documentation."""
        return meanings(cls)


class Link:
    """Keeps a session with the worker.

    connect: makes the transport.  clock_ns: CLOCK_MONOTONIC.  draw: uniform in 0..1, for the jitter.
    on_order: operators paused it, or resumed or rearmed it and the attempt that follows is not over; rounds go without
    the worker then, and that is no failure.
    """

    def __init__(
        self,
        options: LinkOptions,
        connect: Connect,
        clock_ns: Callable[[], int],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._options = options
        self._connect = connect
        self._clock_ns = clock_ns
        self._backoff = Backoff(options.retry_ns, options.retry_max_ns, draw)
        self._changed = threading.Condition()
        self._session: Session | None = None
        self._epoch = 0
        self._closed = self._paused = self._awake = False
        self._leaving: list[Session] = []
        self._orders = 0
        self.on_order = False
        self.flapped = False
        self._thread: threading.Thread | None = None
        self.counters = LinkCounters()
        self.disabled = ""
        self.last_failure = ""
        self.worker: HelloReply | None = None
        self.peer: Peer | None = None

    # --- the round's side ---

    @property
    def session(self) -> Session | None:
        """The session there is now; never waits."""
        return self._session

    def frame_bytes(self, peer: Peer) -> int:
        """Bytes of the largest message with this peer."""
        return frame_bytes(self._options.shape, peer)

    def lost(self, session: Session, reason: str) -> None:
        """The round's thread found this session unusable; the link replaces it."""
        with self._changed:
            if self._session is not session:
                return
            self._session = None
            self._count_loss(session, reason)
            self._changed.notify_all()
        session.transport.close()
        log.warning(
            "remote DSpark session %d with %s ended: %s", session.epoch, self._options.endpoint, reason
        )

    # --- life ---

    def decorate(self, wrap: Callable[[Connect], Connect]) -> None:
        """Connect through what wrap makes of the way there is.  Before `start`."""
        assert self._thread is None, "the thread is connecting already"
        self._connect = wrap(self._connect)

    def start(self) -> None:
        """Begin connecting, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spark-overlay-link", daemon=True)
            self._thread.start()

    def wait_ready(self, timeout_s: float) -> bool:
        """Whether there is a session, waiting at most timeout_s for one, or for the remote to be disabled."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._session or self.disabled or self._paused or self._closed, timeout_s
            )
            return self._session is not None

    def close(self) -> None:
        """End the session, and the thread within CLOSE_JOIN_S.  The round's thread must be done."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            if self._session is not None:
                self._leaving.append(self._session)
                self._session = None
            self._changed.notify_all()
        self._leave()
        if self._thread is not None:
            self._thread.join(CLOSE_JOIN_S)

    # --- orders of operators; no round is under way ---

    def pause(self) -> None:
        """End the session with a goodbye, and make none until `resume`.  The thread does what may wait."""
        with self._changed:
            if not self._paused:
                self._paused = True
                self._ordered()

    def resume(self) -> None:
        """Connect again, at once."""
        with self._changed:
            if self._paused:
                self._paused = False
                self._ordered()

    def rearm(self) -> None:
        """Forget that the remote is disabled and how often connecting failed; begin with a fresh HELLO."""
        with self._changed:
            self.disabled = ""
            self._ordered()

    def _ordered(self) -> None:
        """With the lock held."""
        self._orders += 1
        self.on_order = self._awake = True
        self.flapped = False
        self._backoff.reset()
        if self._session is not None:
            self._leaving.append(self._session)
            self._session = None
            self.counters.sessions_ordered_off += 1
        self._changed.notify_all()

    # --- the connecting thread ---

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._session is not None and not self._leaving:
                    self._changed.wait(IDLE_CHECK_S)
                elif self._rests:
                    self._changed.wait_for(lambda: self._closed or not self._rests)
                # Looked at after the wait: `close` ends it, and must not be answered by another attempt.
                if self._closed:
                    return
            self._wait(self.turn() / 1e9)

    @property
    def _rests(self) -> bool:
        """Whether there is nothing to do but wait for an order."""
        return bool(self._paused or self.disabled) and not self._leaving

    def turn(self) -> int:
        """One turn of the connecting thread; nanoseconds to pause after it, 0 for none.

        A simulation calls it at simulated times in place of the thread.
        """
        self._leave()
        session = self._session
        if self._paused or self.disabled:
            return 0
        if session is not None:
            self.check_idle(session)
        elif self.flapped or not self.attempt():
            self.flapped = False
            return self._backoff.next_ns()
        return 0

    def check_idle(self, session: Session) -> None:
        """Replace a session whose connection died while no round used it."""
        if not session.transport.alive:
            self.lost(session, "the connection died while idle")

    def attempt(self) -> bool:
        """One try to connect and say HELLO; True where a session, or a final no, came of it."""
        transport: ClientTransport | None = None
        orders = self._orders
        try:
            deadline_ns = self._clock_ns() + self._options.connect_timeout_ns
            transport = self._connect(
                self._options.endpoint,
                service=SERVICE,
                version_min=VERSION,
                version_max=VERSION,
                max_frame_bytes=self._options.shape.max_frame_bytes,
                deadline_ns=deadline_ns,
            )
            session = self._hello(transport, deadline_ns)
        except DisabledError as error:
            self._disable(str(error), orders)
        except (TransportError, ContractError, OSError) as error:
            self._failed(error, orders)
        except Exception as error:
            # Not narrower: this thread must live as long as the engine, or no session ever comes again.
            log.debug("an attempt to connect failed for a defect of the overlay", exc_info=True)
            self._failed(RuntimeError(f"a defect of the overlay: {type(error).__name__}: {error}"), orders)
        else:
            return self._publish(session)
        if transport is not None:
            transport.close()
        return bool(self.disabled)

    def _hello(self, transport: ClientTransport, deadline_ns: int) -> Session:
        options = self._options
        self._epoch += 1
        self.peer = transport.peer
        reply = say_hello(transport, options, self._epoch, deadline_ns)
        self.counters.hellos += 1
        self.worker = (reply.hello or self.worker) if isinstance(reply, Refused) else reply
        hello = agreed(options.shape, reply)
        return Session(transport, self._epoch, self.frame_bytes(transport.peer), hello, self._clock_ns())

    def _publish(self, session: Session) -> bool:
        with self._changed:
            closed, paused = self._closed, self._paused
            if not (closed or paused):
                self._session = session
                self.on_order = False
                self._changed.notify_all()
        if closed or paused:
            if not closed:
                self._goodbye(session)
            session.transport.close()
            return True
        log.info(
            "remote DSpark worker %r of life %016x ready at %s (session %s, epoch %d)",
            session.hello.worker_name,
            session.hello.boot_nonce,
            self._options.endpoint,
            self._options.engine_id.hex(),
            session.epoch,
        )
        return True

    def _failed(self, error: Exception, orders: int) -> None:
        with self._changed:
            self.counters.connect_failures += 1
            self._is_over(orders)
            self.last_failure = str(error)
        log.warning("remote DSpark worker at %s: %s", self._options.endpoint, error)

    def _disable(self, reason: str, orders: int) -> None:
        ours, theirs = self._options.shape, self.worker.shape if self.worker else None
        with self._changed:
            # Where a rearm came while the worker was asked, only one that is asked after it can say a final no.
            final = orders == self._orders
            if final:
                self.disabled = reason
                self._is_over(orders)
                self._changed.notify_all()
        if not final:
            self._failed(RuntimeError(reason), orders)
            return
        log.error(
            "remote DSpark disabled for this engine run: %s; the engine: %s; the worker: %s",
            reason,
            shape_text(ours),
            shape_text(theirs) if theirs else "unknown",
        )

    def _count_loss(self, session: Session, reason: str) -> None:
        """With the lock held.  Only a session that lived for a while earns an attempt without a delay."""
        self.counters.disconnects += 1
        self.last_failure = reason
        self.flapped = self._clock_ns() - session.opened_ns < self._options.retry_ns
        if not self.flapped:
            self._backoff.reset()

    def _is_over(self, orders: int) -> None:
        """An attempt brought no session; with the lock held.  From here on that is a failure, unless orders came."""
        self.on_order = self.on_order and (self._paused or orders != self._orders)

    def _wait(self, seconds: float) -> None:
        """Until the next attempt is due, or an order wants one now."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._awake, seconds)
            self._awake = False

    def _leave(self) -> None:
        """End the sessions that nobody is to use any more."""
        while self._leaving:
            try:
                session = self._leaving.pop(0)
            except IndexError:
                return  # `close` and the thread share the work
            self._goodbye(session)
            session.transport.close()

    def _goodbye(self, session: Session) -> None:
        say_goodbye(session, self._options.engine_id, self._clock_ns() + GOODBYE_NS)
