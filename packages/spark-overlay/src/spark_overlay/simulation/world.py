"""A whole engine in simulated time, in one thread, from one seed: scheduler, target, two ranks, the real remote
drafter, a faulty network and the worker that the caller brings.

`Simulation.step` is one engine step with its round, checked.  What does not hold raises SimulationFailedError, whose
text is one line that replays the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ofl.contract.records import Buffer
from ofl.faults import Planned, faulty_connect

from spark_overlay.simulation.checker import Circumstances
from spark_overlay.simulation.clock import MS, SimulatedClock
from spark_overlay.simulation.engine_life import EngineLife, EngineOptions
from spark_overlay.simulation.hazards import Disturbed, Hazards, Rates
from spark_overlay.simulation.model import Model
from spark_overlay.simulation.network import Network, WorkerHost
from spark_overlay.simulation.orders import FileTwin, SimulatedOrders
from spark_overlay.simulation.ranks import RoundRaisedError, Step
from spark_overlay.simulation.requests import SimulatedRequest
from spark_overlay.simulation.target import SimulatedTarget
from spark_overlay.simulation.workload import Rates as WorkloadRates
from spark_overlay.simulation.workload import SeededWorkload, Workload

FIGURES_EVERY = 50
"""Steps between two looks at the overlay's figures."""
STEP_NS = 8 * MS
"""What an engine step takes beside its round."""
DISABLED_STEPS = 5
"""Steps that an engine with a disabled remote is watched for before another one starts."""
ATTEMPTS_MAX = 200
"""Attempts to connect of an engine that must have a worker before it serves."""


class Worker(WorkerHost, Disturbed, Protocol):
    """The worker that the caller brings."""


class SimulationFailedError(AssertionError):
    """Something does not hold; the text says what, and how to see it again."""


@dataclass(frozen=True)
class Scenario:
    """One run.  faults: whether anything goes wrong.  noisy_rounds, then quiet_rounds, over and over.
    orders: share of noisy rounds in which operators change the control file.

    replay: the command that runs it again, but for `--rounds`.
    """

    seed: int
    options: EngineOptions
    faults: bool = True
    rates: Rates = field(default_factory=Rates)
    workload: WorkloadRates = field(default_factory=WorkloadRates)
    noisy_rounds: int = 48
    quiet_rounds: int = 46
    orders: float = 0.0
    replay: str = "(no command)"


class Simulation:
    """One run of one scenario.  workload: the scenario's unless given.  on_engine: called with each engine that starts.

    rounds, engines: so far.  said: tokens of requests that ended.  quiet: rounds since anything was wrong.
    """

    def __init__(
        self,
        scenario: Scenario,
        model: Model,
        worker: Worker,
        workload: Workload | None = None,
        on_engine: Callable[[EngineLife, Hazards], None] | None = None,
    ) -> None:
        self.scenario, self.model, self.worker = scenario, model, worker
        self.clock = SimulatedClock()
        self.network = Network(self.clock, worker, departure_ns=3 * STEP_NS)
        timeout_ns = scenario.options.timeout_ms * MS
        self.hazards = Hazards(scenario.seed, self.clock, self.network, worker, scenario.rates, timeout_ns)
        self.workload = workload or SeededWorkload(scenario.seed, model, scenario.workload)
        self.target = SimulatedTarget(model, trims=scenario.options.trims)
        self.rounds = self.engines = self.quiet = self.said = 0
        self._disturbances = self._disabled_steps = 0
        self._link_due_ns = 0
        self._on_engine = on_engine
        self.orders = SimulatedOrders(scenario.seed, scenario.orders, model.block_length)
        self.engine = self._start()

    def run(self, rounds: int) -> None:
        """So many steps more.  Raises SimulationFailedError."""
        for _ in range(rounds):
            self.step()

    def step(self) -> None:
        """One engine step with its round.  Raises SimulationFailedError."""
        self.rounds += 1
        try:
            self._step()
        except Exception as error:
            # Not narrower: whatever is wrong must come with the way to see it again.
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise SimulationFailedError(f"{self.scenario.replay} --rounds {self.rounds}: {text}") from error

    def close(self) -> None:
        """End the engine."""
        self.engine.close()

    # --- ofl.faults.Plan ---

    def for_connect(self) -> Planned | None:
        """See `ofl.faults.Plan`."""
        return self.hazards.for_connect()

    def for_call(self, parts: Sequence[Buffer]) -> Planned | None:
        """See `ofl.faults.Plan`; the checker sees every message before anything happens to it."""
        sent = self.engine.checker.sent(parts)
        if sent is None:
            return self.hazards.for_hello()
        return self.hazards.for_message(sent.slots, wants_drafts=sent.wants_drafts)

    # --- one step ---

    def _step(self) -> None:
        engine = self.engine
        if self.orders.before_step(noisy=self._noisy_now):
            self.quiet = min(
                self.quiet, 1
            )  # no fault, so that even the first round after a resume must be right
        self._look_at_orders()
        self._connect_where_due()
        self._disabled_steps = self._disabled_steps + 1 if engine.link.disabled else 0
        if self._disabled_steps > DISABLED_STEPS:
            engine = self._restart()
        self.workload.arrive(engine.scheduler)
        for request in self.workload.disturb(engine.scheduler):
            self._end(request)
        step = engine.next_step(self.target)
        if step.entries:
            self._round(engine, step)
        engine = self.engine
        if self.rounds % FIGURES_EVERY == 0:
            engine.check_figures()
        for request in [request for request in engine.scheduler.running if request.finished]:
            self._end(request)
        self.clock.run_until(self.clock() + STEP_NS)
        self.quiet = self._quiet_now() + 1
        self._disturbances = self.hazards.disturbances

    def _round(self, engine: EngineLife, step: Step) -> None:
        phases = engine.phases(step)
        if self._noisy_now and engine.link.session is not None:
            self.hazards.before_round(phases, [entry.slot for entry in step.entries])
        engine.ranks[0].fail_next = self.hazards.seam_error
        try:
            engine.round(step, lambda: self._circumstances(first="first_round" in phases))
        except RoundRaisedError:
            assert engine.options.raises, "only where the operator asked for it"
            self._restart()
        finally:
            self.hazards.after_round()

    def _end(self, request: SimulatedRequest) -> None:
        self.engine.scheduler.remove(request)
        self.said += len(request.tokens) - request.prompt_length
        request.check_text(self.model)

    @property
    def _noisy_now(self) -> bool:
        scenario = self.scenario
        at = self.rounds % (scenario.noisy_rounds + scenario.quiet_rounds)
        return scenario.faults and at < scenario.noisy_rounds

    def _circumstances(self, *, first: bool) -> Circumstances:
        quiet = self._quiet_now()
        return Circumstances(self.hazards.corrupted, quiet, first and quiet > 0, self.engine.link.on_order)

    def _quiet_now(self) -> int:
        """Rounds since anything was wrong, this one included."""
        met_one = self.hazards.disturbances != self._disturbances
        down = self.clock() < self.network.down_until_ns or self.engine.link.on_order
        return 0 if met_one or down or self.hazards.noisy else self.quiet

    # --- the connecting thread's turns ---

    def _look_at_orders(self) -> None:
        """The control thread's turn, and the link's where it must act on what changed."""
        control, link = self.engine.drafter.control, self.engine.link
        assert control is not None, "a simulated engine always has a control file"
        on_order, rearms = link.on_order, control.rearms
        self.engine.look_at_orders()
        assert control.rearms == rearms or not (link.disabled or link.session), "a rearm that changed nothing"
        self.engine.checker.paused, self.engine.checker.cap = control.paused, control.depth_max
        if control.paused or link.on_order != on_order:
            self._link_due_ns = 0
        if control.paused:
            assert link.session is None, "a session while paused"
            link.turn()

    def _connect_where_due(self) -> None:
        link = self.engine.link
        if self.engine.checker.paused:
            return
        if link.disabled or (link.session is None and self.clock() < self._link_due_ns):
            return
        if link.session is None:
            self.hazards.before_attempt(quiet=not self._noisy_now)
        pause_ns = link.turn()
        self.hazards.after_attempt()
        self._link_due_ns = self.clock() + pause_ns

    # --- engines ---

    def _start(self) -> EngineLife:
        self.engines += 1
        self._disabled_steps = self._link_due_ns = 0
        connect = faulty_connect(
            self.network.connect, self, clock_ns=self.clock, sleep_until=self.clock.run_until
        )
        engine = EngineLife(
            self.scenario.options, self.model, connect, self.clock, self.scenario.seed, FileTwin(self.orders)
        )
        if self._on_engine is not None:
            self._on_engine(engine, self.hazards)
        return engine

    def _restart(self) -> EngineLife:
        """The engine ended; another one starts, and its clients ask again."""
        old = self.engine
        old.check_figures()
        requests = [*old.scheduler.running, *old.scheduler.waiting]
        old.close()
        self.engine = self._start()
        for request in requests:
            request.leave()
        self.engine.scheduler.waiting.extend(requests)
        self._look_at_orders()
        if self.engine.options.raises:
            self._wait_for_worker()
        return self.engine

    def _wait_for_worker(self) -> None:
        """As `start` does where ON_FAIL=raise."""
        for _ in range(ATTEMPTS_MAX):
            self._connect_where_due()
            if (
                self.engine.link.session is not None
                or self.engine.link.disabled
                or self.engine.checker.paused
            ):
                return
            self.clock.run_until(self._link_due_ns)
        raise AssertionError(f"no session after {ATTEMPTS_MAX} attempts to connect")
