"""Operators of a simulated engine: whatever they ask for and whenever, text, drafts, ranks and counters hold."""

import pytest
from spark_overlay.simulation.engine_life import POLICIES, Policy

from demo.simulated.scenarios import simulation


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("window", [0, 8])
def test_orders_of_every_kind_among_faults_leave_the_text_as_it_is(policy: Policy, window: int) -> None:
    made = simulation(31, policy, window, orders=0.25)
    made.run(700)
    made.close()
    assert all(made.orders.given.values()), made.orders.given
    assert made.said > 500


def test_a_paused_engine_is_heard_of_again_only_after_the_resume() -> None:
    made = simulation(32, "capacity", 8, orders=0.25)
    paused = resumed = 0
    for _ in range(400):
        before = made.engine
        made.step()
        if made.engine is before and made.engine.checker.paused:
            assert made.engine.link.session is None
            paused += 1
        resumed += not made.engine.checker.paused and made.engine.link.session is not None
    assert paused > 20
    assert resumed > 100
    counters = made.engine.drafter.stats()["counters"]
    assert isinstance(counters, dict)
    assert counters["rounds_paused"]
    assert counters["sessions_ordered_off"]


def test_a_run_with_orders_repeats_exactly() -> None:
    seen = []
    for _ in range(2):
        made = simulation(33, "shadow_remote", 8, orders=0.25)
        made.run(200)
        seen.append((made.clock(), made.said, made.orders.given, made.engine.drafter.core.counters.as_dict()))
    assert seen[0] == seen[1]


def test_no_order_outlasts_the_noisy_rounds() -> None:
    made = simulation(34, "resilience", 8, orders=0.25)
    length = made.scenario.noisy_rounds + made.scenario.quiet_rounds
    for _ in range(4):
        made.run(length - 1)
        assert not made.orders.paused
        assert made.orders.record.depth_max is None
        made.run(1)
    assert made.orders.given["pause"]
