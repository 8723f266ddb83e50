"""A drafter that runs for days holds no more than one that ran for minutes: nothing grows with rounds or requests."""

import gc
import resource
import sys
from pathlib import Path

import pytest
from spark_overlay.simulation.engine_life import Policy
from spark_overlay.simulation.world import Simulation

from demo.simulated.scenarios import simulation

SAMPLE_EVERY = 25
PAGE_BYTES = resource.getpagesize()


def blocks_held(made: Simulation, rounds: int) -> int:
    """The fewest memory blocks that Python held between steps of so many rounds: running requests come and go."""
    fewest = sys.maxsize
    for number in range(rounds):
        made.step()
        if number % SAMPLE_EVERY == 0:
            gc.collect()
            fewest = min(fewest, sys.getallocatedblocks())
    return fewest


def resident_bytes() -> int:
    """This process's memory, numpy's arrays included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def grows(policy: Policy, first: int, last: int, window: int) -> tuple[int, int]:
    """Blocks held in the `window` rounds up to round `first`, and in those up to round `last`."""
    made = simulation(2, policy, 8)
    made.run(first - window)
    before = blocks_held(made, window)
    made.run(last - first - window)
    return before, blocks_held(made, window)


@pytest.mark.parametrize("policy", ["capacity", "shadow_remote"])
def test_ten_thousand_rounds_leave_nothing_behind(policy: Policy) -> None:
    before, after = grows(policy, first=3_000, last=10_000, window=1_500)
    # One object for each of 7,000 rounds would be 7,000 blocks; contexts of different lengths are some hundreds.
    assert after - before < 1_000, f"{before} blocks after 3,000 rounds, {after} after 10,000"


@pytest.mark.full
def test_a_hundred_thousand_rounds_leave_nothing_behind() -> None:
    made = simulation(2, "shadow_remote", 8)
    made.run(18_000)
    before, resident = blocks_held(made, 2_000), resident_bytes()
    made.run(78_000)
    after, grown = blocks_held(made, 2_000), resident_bytes() - resident
    assert made.rounds == 100_000
    assert after - before < 1_000, f"{before} blocks after 20,000 rounds, {after} after 100,000"
    assert grown < 4 << 20, f"{grown} bytes more resident after 80,000 rounds"
