"""The simulator itself: it repeats exactly, a failure says how to see it again, and every fault really happens."""

import re
import shlex

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_overlay.round.ring import Ring
from spark_overlay.simulation.engine_life import POLICIES, Policy
from spark_overlay.simulation.hazards import Rates
from spark_overlay.simulation.world import Simulation, SimulationFailedError

from demo.simulated.__main__ import main
from demo.simulated.scenarios import WINDOWS, simulation


def trace(made: Simulation, rounds: int) -> list[object]:
    """What a run did, step by step."""
    seen: list[object] = []
    for _ in range(rounds):
        made.step()
        counters = made.engine.drafter.core.counters.as_dict()
        seen.append((made.clock(), made.said, made.engines, tuple(counters.values())))
    return [*seen, dict(made.hazards.coverage)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_seed_repeats_exactly_and_another_one_does_something_else(policy: Policy) -> None:
    first = trace(simulation(21, policy, 8), 150)
    assert first == trace(simulation(21, policy, 8), 150)
    assert first != trace(simulation(22, policy, 8), 150)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("policy", POLICIES)
def test_without_faults_every_wish_is_granted_in_every_round(policy: Policy, window: int) -> None:
    made = simulation(1, policy, window, faults=False)
    made.run(120)
    made.engine.check_figures()
    counters = made.engine.drafter.core.counters
    assert made.engines == 1
    assert counters.rounds_failed == counters.rounds_some_failed == counters.append_refused == 0
    assert counters.rounds_ok > 90
    assert made.engine.scheduler.preemptions
    if window not in (1, 3):  # a row or three are there again too soon
        assert made.engine.checker.partial, "a prefix-cache hit left a partial window"


@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(POLICIES),
    window=st.sampled_from(WINDOWS),
    share=st.floats(0.0, 0.6),
)
@settings(max_examples=25, deadline=None)
def test_any_seed_holds_at_any_share_of_faults(seed: int, policy: Policy, window: int, share: float) -> None:
    simulation(seed, policy, window, rates=Rates(common=share, rare=share)).run(80)


@pytest.mark.parametrize("window", WINDOWS)
def test_an_engine_that_cannot_tell_additions_drafts_right_all_the_same(window: int) -> None:
    made = simulation(6, "capacity", window)
    assert not made.scenario.options.tells_additions
    made.run(400)
    assert made.engine.scheduler.preemptions


@pytest.mark.parametrize("window", [0, 16])
def test_a_round_over_its_budget_goes_over_several_rounds_and_stays_right(window: int) -> None:
    made = simulation(3, "capacity", window)
    assert made.scenario.options.round_bytes == 40 * made.model.row_bytes
    made.run(400)
    assert made.engine.drafter.core.counters.req_resync_pending


def test_a_failure_is_one_line_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_read = Ring.read
    monkeypatch.setattr(
        Ring, "read", lambda self, slot, first, count: whole_read(self, slot, first + 1, count)
    )
    with pytest.raises(SimulationFailedError) as caught:
        simulation(3).run(2_000)
    said = str(caught.value)
    command = re.match(r"python -m demo\.simulated (--seed 3 --policy \w+ --window \d+ --rounds \d+): ", said)
    assert command is not None, said
    assert "\n" not in said
    result = CliRunner().invoke(main, shlex.split(command[1]))
    assert result.exit_code == 1
    assert said in result.output
    monkeypatch.undo()
    result = CliRunner().invoke(main, shlex.split(command[1]))
    assert result.exit_code == 0, result.output
    assert "tokens as the target alone says them" in result.output


def test_every_reason_that_a_worker_and_a_network_can_give_is_met() -> None:
    """The canary of the simulation: a run in which some path never ran would prove nothing about it."""
    seen: dict[str, int] = {}
    for seed in (0, 1, 3, 5):
        made = simulation(seed)
        for _ in range(1_200):
            before = made.engine
            made.step()
            if made.engine is not before or made.rounds == 1_200:
                for name, count in before.drafter.core.counters.as_dict().items():
                    seen[name] = seen.get(name, 0) + count
    expected_silent = {
        # One thread: no session comes in the middle of a round.
        "fallback_reconnected",
        # Both ends keep to version, shape and policy, and the engine describes itself well.
        "fallback_frame_bad_message",
        "fallback_frame_version",
        "fallback_frame_mismatch",
        "fallback_frame_stale_epoch",
        "fallback_frame_policy",
        "req_no_context",
        "req_bad",
        # A quarter of the drafts are wrong, never all of two hundred rounds.
        "acceptance_alarms",
    }
    assert {name for name, count in seen.items() if not count} == expected_silent
