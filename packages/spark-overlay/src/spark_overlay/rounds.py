"""Synchronous rounds: the driver between the engine's thread, the round core and the connection.

Owns the deadline and the order of calls.  Must never raise into the engine, wait past a round's
deadline, or wait for a connection.
"""

import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from ofl.contract.dspark_v1 import HelloFlag, Policy, Shape
from ofl.contract.dspark_v1.rules import check_shape
from ofl.contract.identity import parse_digest
from ofl.contract.records import Buffer, ContractError
from ofl.errors import DeadlineError, TransportError

from spark_overlay.figures import Figures
from spark_overlay.interface import EngineFacts, LocalDrafts, RemoteUnavailableError
from spark_overlay.link import Connect, Link, LinkOptions, Session
from spark_overlay.misses import MissWatch
from spark_overlay.report import Reporter
from spark_overlay.round import reasons
from spark_overlay.round.core import RoundCore
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.ring import ring_rows_needed
from spark_overlay.round.session import Frame
from spark_overlay.settings import PREFIX, Settings, SettingsError

log = logging.getLogger(__name__)

NO_WAIT_NS = 0
"""A deadline in the past: take what is there."""


def session_shape(settings: Settings, facts: EngineFacts) -> Shape:
    """What this engine says in HELLO."""
    return Shape(
        identity=parse_digest(settings.identity, "identity"),
        markov_identity=parse_digest(settings.markov_identity, "markov_identity"),
        target_binding=facts.target_binding,
        vocabulary=facts.vocabulary,
        row_elements=facts.row_elements,
        window=facts.window,
        max_positions=facts.max_positions,
        max_frame_bytes=settings.frame_bytes,
        block_length=facts.block_length,
        max_slots=facts.max_slots,
        tap_count=facts.tap_count,
        row_form=facts.row_form,
        row_dtype=facts.row_dtype,
    )


def make_core(settings: Settings, facts: EngineFacts) -> RoundCore:
    """The round core for these settings.

    Raises SettingsError where they leave no room for a round, or where no HELLO could state this engine.
    """
    ring_rows = min(settings.ring_rows, facts.max_positions)
    if facts.window:
        ring_rows = ring_rows_needed(facts.window, facts.block_length, facts.pipeline_depth)
    shape = session_shape(settings, facts)
    try:
        core = RoundCore(shape, ring_rows=ring_rows, round_bytes_max=settings.round_bytes)
        check_shape(shape, "hello")
    except ContractError as error:
        # Found here, at the start, and not by the connecting thread, which could only try again for ever.
        name = f"{PREFIX}_FRAME_BYTES" if error.field == "hello.max_frame_bytes" else PREFIX
        raise SettingsError([f"{name}: no worker can serve this engine: {error}."]) from None
    except ValueError as error:
        text = str(error)
        name = "_ROUND_BYTES" if text.startswith("round_bytes_max") else "_FRAME_BYTES"
        raise SettingsError([f"{PREFIX}{name}: {text}."]) from None
    return core


class RemoteDrafter:
    """The remote drafter of one engine; implements `interface.Drafter`.  One thread calls it.

    connect: `ofl.client.connect` unless a test brings its own.  clock_ns: CLOCK_MONOTONIC.  draw: uniform in
    0..1, for the jitter of the attempts to connect.
    Raises SettingsError where the settings do not fit the engine.
    """

    def __init__(
        self,
        settings: Settings,
        facts: EngineFacts,
        *,
        connect: Connect | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._clock_ns = clock_ns
        self._timeout_ns = int(settings.timeout_ms * 1e6)
        self.core = make_core(settings, facts)
        self._figures = Figures()
        self._misses = MissWatch(settings.timeout_ms)
        self._reporter = Reporter(settings.stats_file)
        self.acknowledgements: deque[tuple[int, int]] = deque()
        self._last_internal_error = ""
        self._closed = False
        self.engine_id = os.urandom(16)
        self.link = Link(
            LinkOptions(
                endpoint=settings.endpoint,
                policy=Policy[settings.policy.upper()],
                shape=self.core.shape,
                engine_id=self.engine_id,
                connect_timeout_ns=int(settings.connect_timeout_ms * 1e6),
                retry_ns=int(settings.retry_ms * 1e6),
                retry_max_ns=int(settings.retry_max_ms * 1e6),
            ),
            connect or _transport(),
            clock_ns,
            draw,
        )

    # --- life ---

    def start(self, wait_ready_s: float = 0.0) -> bool:
        """Begin connecting; returns whether a session came within wait_ready_s.

        Raises RemoteUnavailableError where ON_FAIL=raise and none came in time (CONNECT_TIMEOUT_MS at least).
        """
        must = self._settings.on_fail == "raise"
        self._reporter.start()
        self.link.start()
        wait_s = max(wait_ready_s, self._settings.connect_timeout_ms / 1000) if must else wait_ready_s
        ready = self.link.wait_ready(wait_s)
        if must and not ready:
            reason = self.link.disabled or self.link.last_failure or "no answer"
            raise RemoteUnavailableError(
                f"{PREFIX}_ON_FAIL is 'raise' and no worker is ready at {self._settings.endpoint}: {reason}"
            )
        return ready

    def close(self) -> None:
        """Say goodbye, write the last figures, end the threads; each within a bound."""
        if self._closed:
            return
        self._closed = True
        self._reporter.post(self.stats())
        self.link.close()
        self.core.close_session()
        self._reporter.close()

    # --- rounds ---

    def round(self, requests: Sequence[RoundRequest], rows: Buffer, gather_us: float = 0.0) -> RoundResult:
        """One step; see `interface.Drafter`."""
        start_ns = self._clock_ns()
        try:
            result = self._round(self._wished(requests), rows, start_ns + self._timeout_ns)
        except Exception as error:
            # Not narrower: whatever is wrong with us, the engine must go on without drafts.
            result = self._internal_error(len(requests), error)
        self._figures.add("gather_us", gather_us)
        self._figures.add("rank0_round_us", gather_us + (self._clock_ns() - start_ns) / 1000)
        missed = result.reason == reasons.TIMEOUT
        if (missed or result.ok.any()) and (sentence := self._misses.note(missed)) is not None:
            log.warning("remote DSpark: %s", sentence)
        every = self._settings.log_every
        if every and self.core.counters.rounds % every == 0:
            self._reporter.post(self.stats())
        return result

    def _round(self, requests: Sequence[RoundRequest], rows: Buffer, deadline_ns: int) -> RoundResult:
        self.core.begin(requests, rows)
        session = self._current_session()
        if session is None:
            if self.link.disabled:
                return self.core.fail(reasons.DISABLED, self.link.disabled)
            return self.core.fail(reasons.NOT_READY, self.link.last_failure)
        try:
            self._take_acknowledgements(session)
            frames = self.core.frames()
            if self.link.session is not session:
                self.core.close_session()
                return self.core.fail(reasons.RECONNECTED)
            return self._exchange(session, frames, deadline_ns)
        except DeadlineError as error:
            return self.core.fail(reasons.TIMEOUT, str(error))
        except TransportError as error:
            self._drop(session, str(error))
            return self.core.fail(reasons.TRANSPORT_ERROR, str(error))

    def _exchange(self, session: Session, frames: Sequence[Frame], deadline_ns: int) -> RoundResult:
        """Send the frames and wait for the awaited one.  Raises DeadlineError and other TransportErrors."""
        transport, awaited = session.transport, None
        start_ns = self._clock_ns()
        for index, frame in enumerate(frames):
            try:
                sequence = transport.submit(frame.parts, deadline_ns=deadline_ns)
            except DeadlineError:
                if transport.alive:
                    self.core.not_sent(frames[index:])
                else:
                    self._drop(session, "the deadline passed in the middle of a message")
                return self.core.fail(reasons.TIMEOUT, "the messages could not be sent in time")
            if frame.awaited:
                awaited = sequence
            else:
                self.acknowledgements.append((sequence, frame.round))
        if awaited is None:
            return self.core.finish(None)
        try:
            body = transport.wait(awaited, deadline_ns=deadline_ns)
        except DeadlineError:
            transport.cancel(awaited)
            raise
        rtt_us = (self._clock_ns() - start_ns) / 1000
        # Replies come in the order of their requests, so the acknowledgements of this round are here.
        self._take_acknowledgements(session)
        result = self.core.finish(body)
        self._count_times(rtt_us, result)
        return result

    def _current_session(self) -> Session | None:
        """The session of this round, new to the core where it is; never waits."""
        session = self.link.session
        if session is not None and session.epoch == self.core.epoch and self.core.new_session_wanted:
            self._drop(session, self.core.new_session_wanted)
            session = None
        if session is None:
            if self.core.epoch:
                self.core.close_session()
        elif session.epoch != self.core.epoch:
            self.acknowledgements.clear()
            self.core.open_session(session.epoch, session.max_frame_bytes)
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
            self.core.acknowledge(round_number, body)

    def _drop(self, session: Session, reason: str) -> None:
        self.link.lost(session, reason)
        self.acknowledgements.clear()
        self.core.close_session()

    def _wished(self, requests: Sequence[RoundRequest]) -> Sequence[RoundRequest]:
        """With N_OUT=0 every draft is for all positions."""
        if self._settings.n_out:
            return requests
        full = self.core.shape.block_length
        return [replace(request, n_out=full) if request.n_out else request for request in requests]

    def _internal_error(self, n_requests: int, error: Exception) -> RoundResult:
        if not self._last_internal_error:
            log.error(
                "remote DSpark: a round failed for a defect of the overlay; counted from here on",
                exc_info=error,
            )
        self._last_internal_error = f"{type(error).__name__}: {error}"
        session = self.link.session
        if session is not None:
            self.link.lost(session, "a defect of the overlay")
        self.acknowledgements.clear()
        return self.core.abort(n_requests, self._last_internal_error)

    def abort(self, n_requests: int, error: Exception) -> RoundResult:
        """The seam could not begin this step's round; see `interface.Drafter`."""
        return self._internal_error(n_requests, error)

    # --- figures ---

    def _count_times(self, rtt_us: float, result: RoundResult) -> None:
        worker_us = float(self.core.last_worker_us)
        self._figures.add("rtt_us", rtt_us)
        if not result.failed:
            self._figures.add("worker_us", worker_us)
            self._figures.add("wire_us", rtt_us - worker_us)

    def record_acceptance(self, accepted: int, drafted: int, position: int) -> None:
        """One request's verification; see `interface.Drafter`."""
        self._figures.acceptance.record(accepted, drafted)

    def record_local(self, local: LocalDrafts, requests: Sequence[RoundRequest], result: RoundResult) -> None:
        """Shadow's comparison; see `interface.Drafter`."""
        raise NotImplementedError

    def record_local_fallback(self, requests: int) -> None:
        """Resilience's fallback; see `interface.Drafter`."""
        raise NotImplementedError

    def must_raise(self, result: RoundResult) -> bool:
        """Whether ON_FAIL=raise and a request that wanted drafts did not get them."""
        fine = (Outcome.OK, Outcome.NO_DRAFT)
        return self._settings.on_fail == "raise" and any(value not in fine for value in result.outcomes)

    def stats(self) -> dict[str, object]:
        """The figures; docs/operations/stats.md says what each means."""
        link, core = self.link, self.core
        return {
            "engine_id": self.engine_id.hex(),
            "endpoint": self._settings.endpoint,
            "policy": self._settings.policy,
            "connected": link.session is not None,
            "disabled": link.disabled,
            "epoch": core.epoch,
            "worker": _worker(link),
            "counters": core.counters.as_dict() | vars(link.counters),
            **self._figures.snapshot(),
            "rank0_buffers": {"ring_bytes": core.ring.nbytes, "ring_rows": core.ring.ring_rows},
            "timeout_ms": self._settings.timeout_ms,
            "budget_rows": core.budget_rows,
            "last_bad_reply": core.last_bad_reply,
            "last_failure": link.last_failure,
            "last_internal_error": self._last_internal_error,
        }


def _transport() -> Connect:
    """The real transport; imported here alone, because it loads the native library."""
    from ofl.client import connect

    return connect


def _worker(link: Link) -> dict[str, object] | None:
    if link.worker is None:
        return None
    flags = link.worker.flags
    return {
        "name": link.worker.worker_name,
        "boot_nonce": f"{link.worker.boot_nonce:016x}",
        "identity": link.worker.shape.identity.hex(),
        "confidence": bool(flags & HelloFlag.CONFIDENCE),
        "fake_drafts": bool(flags & HelloFlag.FAKE_DRAFTS),
    }
