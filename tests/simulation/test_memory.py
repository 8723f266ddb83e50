"""A drafter that runs for days holds no more than one that ran for minutes: nothing grows with rounds or requests."""

import gc
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_overlay.round.core import RoundCore
from spark_overlay.simulation.engine_life import Policy
from spark_overlay.simulation.world import Simulation

from demo.simulated.scenarios import simulation

SAMPLE_EVERY = 25
GROWTH_MAX = 3_000
"""Memory blocks.  Running requests, cached prefixes and the life of the engine make up to 1,300 between two windows."""
RESIDENT_GROWTH_MAX = 4 << 20
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


def test_ten_thousand_rounds_leave_nothing_behind() -> None:
    before, after = grows("shadow_remote", first=3_000, last=10_000, window=1_500)
    assert after - before < GROWTH_MAX, f"{before} blocks after 3,000 rounds, {after} after 10,000"


def test_an_object_that_each_round_leaves_behind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[object] = []
    whole_begin = RoundCore.begin

    def leaky(self: RoundCore, *args: Any) -> None:
        left.append(object())
        whole_begin(self, *args)

    monkeypatch.setattr(RoundCore, "begin", leaky)
    before, after = grows("capacity", first=1_000, last=6_000, window=500)
    assert after - before >= GROWTH_MAX


@pytest.mark.full
def test_a_hundred_thousand_rounds_leave_nothing_behind() -> None:
    made = simulation(2, "shadow_remote", 8)
    made.run(18_000)
    before, resident = blocks_held(made, 2_000), resident_bytes()
    made.run(78_000)
    after, grown = blocks_held(made, 2_000), resident_bytes() - resident
    assert made.rounds == 100_000
    assert after - before < GROWTH_MAX, f"{before} blocks after 20,000 rounds, {after} after 100,000"
    assert grown < RESIDENT_GROWTH_MAX, f"{grown} bytes more resident after 80,000 rounds"
