"""Scenarios by seed: policy, drafter window, schedule and sizes, so that many seeds are many different engines."""

from dataclasses import replace
from typing import Any

from spark_overlay.simulation.engine_life import POLICIES, EngineOptions, Policy
from spark_overlay.simulation.hazards import Rates
from spark_overlay.simulation.workload import Workload
from spark_overlay.simulation.world import Scenario, Simulation
from x86_worker.simulation import ChainModel, SimulatedWorker

WINDOWS = (8, 0, 3, 16, 1)
"""Context rows that the drafter attends to; 0: all."""
SCHEDULE = (0, 5, 5, 3, 2)
SELDOM = Rates(common=0.05, rare=0.5)
"""Where each fault ends the engine: some rounds must go on long enough to have a past."""
ORDERS = 0.04
"""Share of noisy rounds with an order of operators, in a third of the seeds: 5, 8, 11, 14, 17 are of every policy."""


def policy_of(seed: int) -> Policy:
    """Policies take turns."""
    return POLICIES[seed % len(POLICIES)]


def window_of(seed: int) -> int:
    """Windows take turns, each with every policy in turn."""
    return WINDOWS[(seed // len(POLICIES) + seed) % len(WINDOWS)]


def simulation(
    seed: int, policy: Policy | None = None, window: int | None = None, **changes: Any
) -> Simulation:
    """The simulation of a seed, not yet run.  changes: of its Scenario."""
    policy = policy_of(seed) if policy is None else policy
    model = ChainModel(window=window_of(seed) if window is None else window)
    options = replace(
        engine_options(model, policy),
        schedule=SCHEDULE if seed % 3 == 1 else (),
        tells_additions=seed % 7 != 6,
        trims=seed % 2 == 1,
    )
    if seed % 4 == 3:
        options = replace(options, round_bytes=40 * model.row_bytes)
    replay = f"python -m demo.simulated --seed {seed} --policy {policy} --window {model.window}"
    scenario = Scenario(seed, options, rates=SELDOM if options.raises else Rates(), replay=replay)
    scenario = replace(scenario, **{"orders": ORDERS if seed > 2 and seed % 3 == 2 else 0.0} | changes)
    if "orders" in changes:
        scenario = replace(scenario, replay=f"{scenario.replay} --orders {scenario.orders}")
    if not scenario.faults:
        scenario = replace(scenario, replay=f"{scenario.replay} --no-faults")
    return build(scenario, model)


def engine_options(model: ChainModel, policy: Policy) -> EngineOptions:
    """An engine that fits the model's drafter."""
    facts = model.facts()
    return EngineOptions(policy, identity=facts.identity, markov_identity=facts.markov_identity)


def build(scenario: Scenario, model: ChainModel, requests: Workload | None = None) -> Simulation:
    """The simulation of a scenario with its worker.  requests: instead of the scenario's."""
    options = scenario.options
    worker = SimulatedWorker(model, max_slots=options.load.max_requests, max_frame_bytes=options.frame_bytes)
    return Simulation(scenario, model, worker, requests)
