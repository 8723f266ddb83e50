"""One round over whatever session there is: the deadline, the order of calls, and the circuit breaker.

Owns what the round's thread does with a connection.  Must never wait past a round's deadline, or for a connection.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from ofl.contract.records import Buffer
from ofl.errors import DeadlineError, TransportError

from spark_overlay.figures import Figures
from spark_overlay.greeting import Session
from spark_overlay.link import Link
from spark_overlay.round import reasons
from spark_overlay.round.breaker import Breaker, State, judge
from spark_overlay.round.core import RoundCore
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.session import Frame

log = logging.getLogger(__name__)

NO_WAIT_NS = 0
"""A deadline in the past: take what is there."""


class RoundDriver:
    """Drives one engine's rounds.  One thread uses it.

    acknowledgements: (call, round) of each append-only message that is not acknowledged, oldest first.
    """

    def __init__(
        self, core: RoundCore, link: Link, breaker: Breaker, figures: Figures, clock_ns: Callable[[], int]
    ) -> None:
        self._core, self._link, self._breaker, self._figures = core, link, breaker, figures
        self._clock_ns = clock_ns
        self._attempted = False
        self._failures_said = 0
        self.acknowledgements: deque[tuple[int, int]] = deque()

    def round(self, requests: Sequence[RoundRequest], rows: Buffer, deadline_ns: int) -> RoundResult:
        """One step.  What it raises is a defect of ours; `give_up` must follow."""
        self._attempted = False
        result = self._round(requests, rows, deadline_ns)
        state = self._breaker.note(judge(result, attempted=self._attempted))
        if state is State.OPEN:
            # The probe must not fail for its size: each failure costs a whole cooldown.
            self._core.be_careful()
        if state is not None:
            self._say(state, result)
        return result

    # --- orders of operators: between two rounds, from whichever thread ---

    def pause(self) -> None:
        """End the session and make none, until `resume`."""
        self._link.pause()

    def resume(self) -> None:
        """Begin connecting at once."""
        self._link.resume()

    @property
    def on_order(self) -> bool:
        """Whether rounds go without the worker because operators said so, or are about to have it again."""
        return self._link.on_order

    def rearm(self) -> None:
        """Forget refusals and failures, and begin with a fresh HELLO."""
        self._breaker.rearm()
        self._failures_said = 0
        self._link.rearm()

    def give_up(self, reason: str) -> None:
        """End the session for a defect of ours; the core must be told apart."""
        session = self._link.session
        if session is not None:
            self._link.lost(session, reason)
        self.acknowledgements.clear()

    def _round(self, requests: Sequence[RoundRequest], rows: Buffer, deadline_ns: int) -> RoundResult:
        self._core.begin(requests, rows)
        session = self._current_session()
        if self.on_order:
            return self._core.fail(
                reasons.PAUSED, "operators paused remote drafting, or just resumed or rearmed it"
            )
        admitted = self._breaker.admit()
        if session is None:
            if self._link.disabled:
                return self._core.fail(reasons.DISABLED, self._link.disabled)
            return self._core.fail(reasons.NOT_READY, self._link.last_failure)
        try:
            self._take_acknowledgements(session)
            if not admitted:
                return self._core.fail(reasons.COOLDOWN, "the circuit breaker is open")
            frames = self._core.frames()
            if self._link.session is not session:
                self._core.close_session()
                return self._core.fail(reasons.RECONNECTED)
            return self._exchange(session, frames, deadline_ns)
        except DeadlineError as error:
            return self._core.fail(reasons.TIMEOUT, str(error))
        except TransportError as error:
            self._drop(session, str(error))
            return self._core.fail(reasons.TRANSPORT_ERROR, str(error))

    def _exchange(self, session: Session, frames: Sequence[Frame], deadline_ns: int) -> RoundResult:
        """Send the frames and wait for the awaited one.  Raises DeadlineError and other TransportErrors."""
        transport, awaited = session.transport, None
        start_ns = self._clock_ns()
        for index, frame in enumerate(frames):
            self._attempted = True
            try:
                sequence = transport.submit(frame.parts, deadline_ns=deadline_ns)
            except DeadlineError:
                if transport.alive:
                    self._core.not_sent(frames[index:])
                else:
                    self._drop(session, "the deadline passed in the middle of a message")
                return self._core.fail(reasons.TIMEOUT, "the messages could not be sent in time")
            if frame.awaited:
                awaited = sequence
            else:
                self.acknowledgements.append((sequence, frame.round))
        if awaited is None:
            return self._core.finish(None)
        try:
            body = transport.wait(awaited, deadline_ns=deadline_ns)
        except DeadlineError:
            transport.cancel(awaited)
            raise
        rtt_us = (self._clock_ns() - start_ns) / 1000
        # Replies come in the order of their requests: the acknowledgements before this one are here, or never come.
        self._take_acknowledgements(session)
        while self.acknowledgements:
            sequence, round_number = self.acknowledgements.popleft()
            transport.cancel(sequence)
            self._core.unacknowledged(round_number)
        result = self._core.finish(body)
        self._count_times(rtt_us, result)
        return result

    def _current_session(self) -> Session | None:
        """The session of this round, new to the core where it is; never waits."""
        session = self._link.session
        if session is not None and session.epoch == self._core.epoch and self._core.new_session_wanted:
            self._drop(session, self._core.new_session_wanted)
            session = None
        if session is None:
            if self._core.epoch:
                self._core.close_session()
        elif session.epoch != self._core.epoch:
            self.acknowledgements.clear()
            self._core.open_session(session.epoch, session.max_frame_bytes)
            self._breaker.new_session(session.hello.boot_nonce)
        return session

    def _take_acknowledgements(self, session: Session) -> None:
        """Hand over those that have arrived, oldest first; never waits."""
        while self.acknowledgements:
            sequence, round_number = self.acknowledgements[0]
            try:
                body = session.transport.wait(sequence, deadline_ns=NO_WAIT_NS)
            except DeadlineError:
                return
            self.acknowledgements.popleft()
            self._core.acknowledge(round_number, body)

    def _drop(self, session: Session, reason: str) -> None:
        self._link.lost(session, reason)
        self.acknowledgements.clear()
        self._core.close_session()

    def _count_times(self, rtt_us: float, result: RoundResult) -> None:
        worker_us = float(self._core.last_worker_us)
        self._figures.add("rtt_us", rtt_us)
        if not result.failed:
            self._figures.add("worker_us", worker_us)
            self._figures.add("wire_us", rtt_us - worker_us)

    def _say(self, state: State, result: RoundResult) -> None:
        """The breaker opened or closed.  Of the probes that fail while it stays open, ever fewer are told."""
        if state is State.CLOSED:
            self._failures_said = 0
            log.info("remote DSpark circuit breaker closed: the probe round succeeded")
            return
        if self._breaker.failures < 2 * self._failures_said:
            return
        self._failures_said = self._breaker.failures
        refused = {Outcome(outcome).name for outcome in result.outcomes.tolist()} - {Outcome.NO_DRAFT.name}
        log.warning(
            "remote DSpark circuit breaker open (%d failed attempts in a row, the last: %s; the next %d rounds stay "
            "off the network)",
            self._breaker.failures,
            f"{result.reason} {result.detail}".strip() or f"refused with {', '.join(sorted(refused))}",
            self._breaker.cooldown_left,
        )
