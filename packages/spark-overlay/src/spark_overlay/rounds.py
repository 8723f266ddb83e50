"""Synchronous rounds: the drafter as the engine's thread calls it.

Owns the parts of one engine run (core, connection, breaker, figures) and their life.  Must never raise into the
engine's step, wait past a round's deadline, or wait for a connection.
"""

import logging
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ofl.contract.dspark_v1 import Policy, Shape
from ofl.contract.dspark_v1.rules import check_shape
from ofl.contract.identity import parse_digest
from ofl.contract.records import Buffer, ContractError
from ofl.interface import Connect

from spark_overlay.agreement import Agreement
from spark_overlay.control.keeper import Keeper
from spark_overlay.control.reader import FileSource, Source
from spark_overlay.control.record import ControlRecord
from spark_overlay.driver import RoundDriver
from spark_overlay.figures import Figures
from spark_overlay.greeting import LinkOptions
from spark_overlay.interface import EngineFacts, LocalDrafts, RemoteUnavailableError
from spark_overlay.link import Link
from spark_overlay.link_facts import refreshed
from spark_overlay.misses import MissWatch
from spark_overlay.report import Reporter
from spark_overlay.round import reasons
from spark_overlay.round.breaker import Breaker
from spark_overlay.round.core import RoundCore
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.ring import ring_rows_needed
from spark_overlay.settings import PREFIX, Settings, SettingsError
from spark_overlay.wishes import Wishes

log = logging.getLogger(__name__)

WRITE_EVERY_NS = 10_000_000_000
"""The stats file is written this often while rounds go on, however many lines the log gets."""


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
    memory: what remote drafting frees and holds here, once the seam has measured it; part of the figures.
    orders: where operators' orders come from; the control file of the settings unless a test brings its own.
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
        orders: Source | None = None,
    ) -> None:
        self._settings = settings
        self._clock_ns = clock_ns
        self._timeout_ns = int(settings.timeout_ms * 1e6)
        self.core = make_core(settings, facts)
        self._wishes = Wishes(settings, facts)
        self._breaker = Breaker(settings.trip, settings.cooldown, self.core.counters)
        agreement = Agreement(facts.max_positions) if settings.policy == "shadow" else None
        self._figures = Figures(self.core.counters, settings.alarm_rounds, agreement)
        self._misses = MissWatch(settings.timeout_ms)
        self.memory: Mapping[str, int] | None = None
        self.depth_note = "the engine is not up"
        self._last_internal_error = ""
        self._posted_ns = clock_ns()
        self._posted_order: ControlRecord | None = None
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
            connect or _transport(settings.key_file),
            clock_ns,
            draw,
        )
        self._driver = RoundDriver(self.core, self.link, self._breaker, self._figures, clock_ns)
        self._reporter = Reporter(settings.stats_file, self._refreshed)
        if orders is None and settings.control_file is not None:
            orders = FileSource(settings.control_file)
        self.control = None if orders is None else Keeper(orders, self._driver, self._reporter.refresh)

    # --- life ---

    def start(self, wait_ready_s: float = 0.0) -> bool:
        """Begin connecting; returns whether a session came within wait_ready_s.

        Raises RemoteUnavailableError where ON_FAIL=raise and none came in time (CONNECT_TIMEOUT_MS at least), unless
        operators have paused it.
        """
        must = self._settings.on_fail == "raise"
        log.info("remote DSpark (%s policy) rank 0 -> %s", self._settings.policy, self._settings.endpoint)
        self._reporter.start()
        self._reporter.post(self.stats(), say=False)
        if self.control is not None:
            # Before the link, so that an engine that starts paused never connects.
            self.control.start()
        self.link.start()
        wait_s = max(wait_ready_s, self._settings.connect_timeout_ms / 1000) if must else wait_ready_s
        ready = self.link.wait_ready(wait_s)
        paused = self.control is not None and self.control.paused
        if must and not ready and not paused:
            reason = self.link.disabled or self.link.last_failure or "no answer"
            raise RemoteUnavailableError(
                f"{PREFIX}_ON_FAIL is 'raise' and no worker is ready at {self._settings.endpoint}: {reason}"
            )
        return ready

    def close(self) -> None:
        """Write the last figures, say goodbye, end the threads; each within a bound.

        The figures come first and are on the disk before anything else is waited for: an engine that stops may be
        killed at any moment from here on.
        """
        if self._closed:
            return
        self._closed = True
        if self.control is not None:
            self.control.close()
        # What is left behind must not tell of a connection.
        self._reporter.post(self.stats() | {"connected": False})
        self._reporter.close()
        self.link.close()
        self.core.close_session()

    # --- rounds ---

    def round(self, requests: Sequence[RoundRequest], rows: Buffer, gather_us: float = 0.0) -> RoundResult:
        """One step; see `interface.Drafter`."""
        start_ns = self._clock_ns()
        try:
            if self.control is not None:
                self.control.begin_round()
            result = self._driver.round(self._wishes.of(requests), rows, start_ns + self._timeout_ns)
        except Exception as error:
            # Not narrower: whatever is wrong with us, the engine must go on without drafts.
            result = self._internal_error(len(requests), error)
        finally:
            if self.control is not None:
                self.control.end_round()
        end_ns = self._clock_ns()
        self._figures.add("gather_us", gather_us)
        self._figures.add("rank0_round_us", gather_us + (end_ns - start_ns) / 1000)
        missed = result.reason == reasons.TIMEOUT
        if (missed or result.ok.any()) and (sentence := self._misses.note(missed)) is not None:
            log.warning("remote DSpark: %s", sentence)
        self._report(end_ns)
        return result

    def abort(self, n_requests: int, error: Exception) -> RoundResult:
        """The seam could not begin this step's round; see `interface.Drafter`."""
        self.core.counters.rounds += 1
        return self._internal_error(n_requests, error)

    def must_raise(self, result: RoundResult) -> bool:
        """Whether ON_FAIL=raise and a request that wanted drafts did not get remote ones, in whatever policy.

        Not while operators have paused it: that is no failure.
        """
        if result.reason == reasons.PAUSED:
            return False
        fine = (Outcome.OK, Outcome.NO_DRAFT)
        return self._settings.on_fail == "raise" and any(value not in fine for value in result.outcomes)

    def _internal_error(self, n_requests: int, error: Exception) -> RoundResult:
        if not self._last_internal_error:
            log.error(
                "remote DSpark: a round failed for a defect of the overlay; counted from here on",
                exc_info=error,
            )
        self._last_internal_error = f"{type(error).__name__}: {error}"
        self._driver.give_up("a defect of the overlay")
        return self.core.abort(n_requests, self._last_internal_error)

    def _report(self, now_ns: int) -> None:
        """Post the figures where a line of the log is due, or the stats file."""
        every = self._settings.log_every
        line_due = every > 0 and self.core.counters.rounds % every == 0
        # The first round under an order says what all rounds before it came to, for whoever gave it.
        order = None if self.control is None else self.control.in_effect
        is_old = now_ns - self._posted_ns >= WRITE_EVERY_NS or order is not self._posted_order
        file_due = self._settings.stats_file is not None and is_old
        if line_due or file_due:
            self._posted_ns, self._posted_order = now_ns, order
            self._reporter.post(self.stats(), say=line_due)

    # --- orders of operators ---

    @property
    def depth_max(self) -> int | None:
        """See `interface.Drafter`."""
        return None if self.control is None else self.control.depth_max

    # --- figures ---

    def record_acceptance(self, accepted: int, drafted: int, position: int) -> None:
        """One request's verification; see `interface.Drafter`."""
        self._figures.verified(accepted, drafted, position)

    def record_local(self, local: LocalDrafts, requests: Sequence[RoundRequest], result: RoundResult) -> None:
        """Shadow's comparison; see `interface.Drafter`.  Raises ValueError where it cannot be of one step."""
        self._figures.compared(local, requests, result)

    def record_local_fallback(self, requests: int) -> None:
        """Local drafts stood in; see `interface.Drafter`."""
        self.core.counters.local_fallback_rounds += 1
        self.core.counters.local_fallback_requests += requests

    def stats(self) -> dict[str, object]:
        """The figures; docs/operations/stats.md says what each means."""
        core, settings = self.core, self._settings
        return self._refreshed(
            {
                "engine_id": self.engine_id.hex(),
                "endpoint": settings.endpoint,
                "policy": settings.policy,
                "shadow_use": settings.shadow_use,
                "on_fail": settings.on_fail,
                "timeout_ms": settings.timeout_ms,
                "epoch": core.last_epoch,
                "counters": core.counters.as_dict(),
                "breaker": self._breaker.summary(),
                **self._figures.snapshot(),
                "n_out_by_reqs": self._wishes.by_requests,
                "n_out_reason": self._wishes.reason,
                "rank0_buffers": {"ring_bytes": core.ring.nbytes, "ring_rows": core.ring.ring_rows},
                "memory": dict(self.memory) if self.memory is not None else None,
                "budget_rows": core.budget_rows,
                "last_bad_reply": core.last_bad_reply,
                "last_internal_error": self._last_internal_error,
            }
        )

    def _refreshed(self, snapshot: Mapping[str, Any]) -> dict[str, Any]:
        """With what is true now of the connection and of orders, whichever thread asks."""
        told = None if self.control is None else self.control.snapshot() | {"depth_note": self.depth_note}
        return refreshed(snapshot, self.link) | {"control": told}


def _transport(key_file: Path | None) -> Connect:
    """The real transport, with the proof of a key; imported here alone, because it loads the native library."""
    from ofl.client import connect

    return connect if key_file is None else partial(connect, key_file=key_file)
