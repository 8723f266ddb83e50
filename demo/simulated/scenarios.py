"""Scenarios by seed: policy, drafter window, schedule and sizes, so that many seeds are many different engines."""

from dataclasses import replace

from spark_overlay.simulation.engine_life import POLICIES, EngineOptions, Policy
from spark_overlay.simulation.world import Scenario, Simulation
from x86_worker.simulation import ChainModel, SimulatedWorker

WINDOWS = (8, 0, 3, 16, 1)
"""Context rows that the drafter attends to; 0: all."""
SCHEDULE = (0, 5, 5, 3, 2)


def policy_of(seed: int) -> Policy:
    """Policies take turns."""
    return POLICIES[seed % len(POLICIES)]


def window_of(seed: int) -> int:
    """Windows take turns, each with every policy in turn."""
    return WINDOWS[(seed // len(POLICIES) + seed) % len(WINDOWS)]


def simulation(
    seed: int, policy: Policy | None = None, window: int | None = None, *, faults: bool = True
) -> Simulation:
    """The simulation of a seed, not yet run."""
    policy = policy_of(seed) if policy is None else policy
    model = ChainModel(window=window_of(seed) if window is None else window)
    facts = model.facts()
    options = EngineOptions(
        policy=policy,
        schedule=SCHEDULE if seed % 3 == 1 else (),
        identity=facts.identity,
        markov_identity=facts.markov_identity,
    )
    if seed % 4 == 3:
        options = replace(options, round_bytes=40 * model.row_bytes)
    worker = SimulatedWorker(model, max_slots=options.load.max_requests, max_frame_bytes=options.frame_bytes)
    replay = f"python -m demo.simulated --seed {seed} --policy {policy} --window {model.window}"
    if not faults:
        replay += " --no-faults"
    return Simulation(Scenario(seed, options, faults=faults, replay=replay), model, worker)
