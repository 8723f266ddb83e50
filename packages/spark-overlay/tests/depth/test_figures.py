"""Samples become figures, tables that the settings take, and lines for an environment file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.depth.figures import (
    Calibration,
    DepthSample,
    by_depth,
    calibration,
    depth_figures,
    environment,
    tables,
)
from spark_overlay.settings import Settings

DIGEST = "0" * 64


def sample(repeat: int, depth: int, step_ms: float, remote_ms: float = 2.0, accepted: int = 0) -> DepthSample:
    """Of 100 steps."""
    rate = (100 + accepted) / (step_ms / 10)
    return DepthSample(repeat, depth, step_ms, step_ms - 0.5, 100, accepted, rate, remote_ms)


def run() -> list[DepthSample]:
    """K = 2, three repeats whose middle one is each depth's median; depth 2 is not worth it."""
    return [
        one
        for repeat, off in enumerate((0.5, 0.0, -0.5))
        for one in (
            sample(repeat, 2, 14 + off, remote_ms=2.5, accepted=90),
            sample(repeat, 0, 11 + off, remote_ms=1.0),
            sample(repeat, 1, 12 + off, remote_ms=2.0, accepted=80),
        )
    ]


FACTS = {
    "overlay_version": "1.2",
    "started_at": 1.0,
    "url": "http://10.0.0.1:8000",
    "model": "tiny",
    "policy": "capacity",
    "endpoint": "tcp://10.0.0.2:18620",
    "prompt_tokens": [8, 8, 8],
    "prompts": "made up",
    "generate": 128,
    "repeats": 3,
}


def test_verifying_is_what_a_step_takes_beside_its_remote_round() -> None:
    made = tables(run(), 2)
    assert made.round_ms == (10.0, 10.0, 11.5)
    # Of depths that draft: 2.0 three times and 2.5 three times.
    assert made.draft_ms == 2.25
    assert (made.raised, made.problem) == ((), "")


def test_an_entry_below_the_one_before_it_is_raised_and_told() -> None:
    samples = [
        sample(repeat, depth, step) for repeat in range(3) for depth, step in enumerate((12, 11.9, 13))
    ]
    made = tables(samples, 2)
    assert made.round_ms == (10.0, 10.0, 11.0)
    assert made.raised == (1,)


def test_without_every_depth_there_is_no_table_and_the_reason_is_told() -> None:
    made = tables([one for one in run() if one.depth != 1], 2)
    assert made.round_ms is None
    assert made.problem == "VLLM_DSPARK_REMOTE_ROUND_MS needs all depths; not measured: 1"
    assert made.draft_ms == 2.5
    assert tables([one for one in run() if one.depth == 0], 2).draft_ms is None


def test_a_step_no_longer_than_its_remote_round_makes_no_table() -> None:
    made = tables([sample(repeat, 0, 2.0, remote_ms=2.0) for repeat in range(3)], 0)
    assert made.round_ms is None
    assert "no longer than its remote round" in made.problem


def test_the_figures_of_a_depth_are_medians_with_their_spread() -> None:
    none, one, two = depth_figures(run(), tables(run(), 2))
    assert (one.depth, one.step_ms, one.step_p50_ms, one.remote_ms, one.verify_ms) == (
        1,
        12.0,
        11.5,
        2.0,
        10.0,
    )
    assert one.accepted_per_step == 0.8
    assert one.tokens_per_s == pytest.approx(150.0)
    assert one.tokens_per_s_low == pytest.approx(180 / 1.25)
    assert one.tokens_per_s_high == pytest.approx(180 / 1.15)
    # By the tables: 1.8 tokens in 10 + 2.25 ms; without drafts 1 token in 10 ms and the round that keeps context, 1 ms.
    assert one.expected_tokens_per_s == pytest.approx(1800 / 12.25)
    assert none.expected_tokens_per_s == pytest.approx(1000 / 11)
    assert two.accepted_per_step == 0.9


def test_steps_that_came_together_leave_no_median() -> None:
    samples = [DepthSample(repeat, 0, 10.0, None, 5, 0, 100.0, 1.0) for repeat in range(3)]
    (figures,) = depth_figures(samples, tables(samples, 1))
    assert figures.step_p50_ms is None
    assert figures.expected_tokens_per_s is None


def test_rates_are_compared_in_the_order_of_the_repeats() -> None:
    shuffled = sorted(run(), key=lambda one: (one.step_ms, one.repeat))
    assert by_depth(shuffled)[1] == [one.tokens_per_s for one in run() if one.depth == 1]


def test_the_lines_are_settings_that_an_engine_of_that_k_takes() -> None:
    found = calibration(run(), 2, **FACTS)
    text = environment(found)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    settings = Settings.from_environ(
        dict(line.split("=", 1) for line in lines)
        | {
            "VLLM_DSPARK_REMOTE": "tcp://10.0.0.2:18620",
            "VLLM_DSPARK_REMOTE_IDENTITY": DIGEST,
            "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": DIGEST,
        }
    )
    assert settings is not None
    assert settings.costs.draft_ms == 2.25
    assert settings.costs.round_ms == (10.0, 10.0, 11.5)
    assert "# best depth 1: " in text
    assert found.best_depth == 1
    assert Calibration.model_validate_json(found.model_dump_json()) == found


def test_the_lines_say_what_they_lack_and_what_was_raised() -> None:
    partly = environment(calibration([one for one in run() if one.depth], 2, **FACTS))
    assert "# VLLM_DSPARK_REMOTE_ROUND_MS needs all depths; not measured: 0" in partly
    assert "\nVLLM_DSPARK_REMOTE_ROUND_MS=" not in partly
    raised = [sample(repeat, depth, step) for repeat in range(3) for depth, step in enumerate((12, 11.9, 13))]
    assert "verifying more never costs less: 1\n" in environment(calibration(raised, 2, **FACTS))


@given(st.lists(st.tuples(st.floats(0.1, 100.0), st.floats(0.0, 0.05)), min_size=9, max_size=9))
def test_every_table_can_be_read_back_as_a_setting(measured: list[tuple[float, float]]) -> None:
    from spark_overlay.depth.tables import round_table, shown

    samples = [sample(at // 3, at % 3, step, remote) for at, (step, remote) in enumerate(measured)]
    made = tables(samples, 2)
    assert made.round_ms is not None
    assert round_table(shown(made.round_ms)) == made.round_ms
