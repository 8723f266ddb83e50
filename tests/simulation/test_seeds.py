"""Thousands of rounds with every fault, in every policy: text, drafts, ranks, deadlines and counters hold.

What holds is written in `spark_overlay.simulation.checker`; a seed that fails says how to run it again.
"""

import logging
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest
from spark_overlay.simulation.engine_life import POLICIES
from spark_overlay.simulation.hazards import FAULTS, IMPOSSIBLE, IMPOSSIBLE_POLICIES, PHASES
from spark_overlay.simulation.world import SimulationFailedError

from demo.simulated.scenarios import policy_of, simulation

ROUNDS = 2_000
SEEDS, SEEDS_FULL = 20, 200
TIMES_FULL = 20

Coverage = Counter[tuple[str, str]]


def run_seed(seed: int) -> tuple[Coverage, str]:
    """How often each fault was met in each phase, and what does not hold ("" where all holds)."""
    logging.disable(logging.CRITICAL)
    made = simulation(seed)
    try:
        made.run(ROUNDS)
        made.close()
    except SimulationFailedError as error:
        return made.hazards.coverage, str(error)
    return made.hazards.coverage, ""


def possible() -> list[tuple[str, str, str]]:
    """Every policy, fault and phase that can be met together."""
    return [
        (policy, fault, phase)
        for policy in POLICIES
        for fault in FAULTS
        for phase in PHASES
        if (fault, phase) not in IMPOSSIBLE and (policy, phase) not in IMPOSSIBLE_POLICIES
    ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_holds_in_every_round_of_a_seed(seed: int) -> None:
    coverage, failure = run_seed(seed)
    assert not failure, failure
    assert set(FAULTS) == {fault for fault, _ in coverage}, "every fault was met"


@pytest.mark.full
def test_everything_holds_in_two_hundred_seeds_that_meet_every_fault_in_every_policy_and_phase() -> None:
    met: Counter[tuple[str, str, str]] = Counter()
    failures = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=spawn) as pool:
        for seed, (coverage, failure) in enumerate(pool.map(run_seed, range(SEEDS_FULL))):
            met.update({(policy_of(seed), *pair): count for pair, count in coverage.items()})
            failures += [failure] if failure else []
    show(met)
    assert not failures, "\n".join(failures)
    rare = {what: met[what] for what in possible() if met[what] < TIMES_FULL}
    assert not rare, f"met less than {TIMES_FULL} times: {rare}"


def show(met: Counter[tuple[str, str, str]]) -> None:
    """The coverage as a table, one line for each policy and fault; `pytest -s` shows it."""
    print("\n" + "policy fault ".ljust(38) + " ".join(phase.rjust(11) for phase in PHASES))
    for policy in POLICIES:
        for fault in FAULTS:
            counts = (met[policy, fault, phase] for phase in PHASES)
            print(f"{policy} {fault} ".ljust(38) + " ".join(str(count).rjust(11) for count in counts))
