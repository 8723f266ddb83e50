"""A measured request counts only where the engine did it and nothing else, by the engine's own counters."""

import threading
from collections.abc import Callable

import pytest
from fake_engine_http import FakeEngine, Planted, fake_engine
from spark_overlay.bench import sample as module
from spark_overlay.bench.errors import BenchRefused
from spark_overlay.bench.plan import Turn
from spark_overlay.bench.sample import Sample, measure, require_idle
from spark_overlay.http_api.api import Asked, EngineApi

TURN = Turn(0, 20, "on")
ASKED = Asked(prompt=tuple(range(20)), max_tokens=21, timeout_s=30.0)


def measured(engine: FakeEngine) -> Sample:
    return measure(EngineApi(engine.url), "tiny", TURN, ASKED)


def test_what_stream_and_counters_say_of_the_same_steps_is_put_together() -> None:
    with fake_engine(Planted(accepted=3, first_s=0.05, step_s=0.02)) as engine:
        one = measured(engine)
    # The first token and 5 steps of 4.
    assert (one.steps, one.seen_steps) == (5, 5)
    assert (one.drafts, one.draft_tokens, one.accepted_tokens) == (5, 25, 15)
    assert one.step_mean_s == pytest.approx(0.02)
    assert one.decode_tokens_per_s == pytest.approx(20 / (5 * 0.02))
    assert one.first_token_s >= 0.05
    assert one.step_p50_s is not None
    assert 0.02 <= one.step_p50_s < 0.05 + one.first_token_s, "a gap between chunks, not from the beginning"


def test_steps_that_came_together_are_no_step_time() -> None:
    with fake_engine(Planted(accepted=3, step_s=0.001, merge=2)) as engine:
        one = measured(engine)
    assert one.steps == 5
    assert one.seen_steps < 5
    assert one.step_p50_s is None
    assert one.step_mean_s == pytest.approx(0.001), "by the engine's clock it is known"


def other(engine: FakeEngine, prompt_tokens: int, generated_tokens: int) -> Callable[[], bool]:
    """Somebody else's request, counted while ours runs."""

    def drafts_on() -> bool:
        engine.totals.values["prompt_tokens_total"] += prompt_tokens
        engine.totals.values["generation_tokens_total"] += generated_tokens
        return True

    return drafts_on


@pytest.mark.parametrize(
    ("planted", "clause"),
    [
        (Planted(running=1), "has other requests, 1 running and 0 waiting"),
        (Planted(waiting=3), "has other requests, 0 running and 3 waiting"),
        (Planted(fewer=1), "21 generated tokens were asked for, and the engine says 20"),
        (Planted(prompt_off=2), "20 prompt tokens were asked for, and the engine says 22"),
        (Planted(cached=16), "16 tokens of a new prompt came from the prefix cache"),
    ],
)
def test_what_does_not_count_is_refused(planted: Planted, clause: str) -> None:
    with fake_engine(planted) as engine, pytest.raises(BenchRefused) as caught:
        measured(engine)
    assert clause in str(caught.value)


@pytest.mark.parametrize(
    ("prompt_tokens", "generated_tokens", "clause"),
    [
        (5, 0, "20 prompt tokens by its metrics were asked for, and the engine says 25"),
        (0, 7, "counted 28 generated tokens where the bench had 21: it served others, or began anew"),
        (0, -1000, "where the bench had 21: it served others, or began anew"),
    ],
)
def test_a_request_beside_ours_is_seen_in_the_counters(
    prompt_tokens: int, generated_tokens: int, clause: str
) -> None:
    with fake_engine() as engine:
        engine.planted.drafts_on = other(engine, prompt_tokens, generated_tokens)
        with pytest.raises(BenchRefused) as caught:
            measured(engine)
    assert clause in str(caught.value)


def test_a_preempted_request_is_no_measurement() -> None:
    def preempt() -> bool:
        engine.totals.values["num_preemptions_total"] += 1
        return True

    with fake_engine() as engine:
        engine.planted.drafts_on = preempt
        with pytest.raises(BenchRefused, match="20 prompt tokens are too many for its KV cache"):
            measured(engine)


def test_an_engine_that_counts_no_steps_is_refused() -> None:
    with fake_engine() as engine:
        engine.count = lambda tokens, first, drafting, step_s: engine.totals.values.update(  # type: ignore[method-assign]
            generation_tokens_total=engine.totals.values["generation_tokens_total"] + tokens
        )
        with pytest.raises(BenchRefused, match="count no decode step"):
            measured(engine)


def test_counters_that_come_late_are_waited_for() -> None:
    """As where vLLM's front end sends a step's tokens before it counts them."""
    with fake_engine() as engine:
        late = threading.Event()
        count = engine.count
        kept: list[tuple[int, bool, bool, float]] = []
        engine.count = lambda *given: kept.append(given)  # type: ignore[method-assign]

        def pause(seconds: float) -> None:
            if not late.is_set():
                late.set()
                for given in kept:
                    count(*given)

        one = measure(EngineApi(engine.url), "tiny", TURN, ASKED, pause)
    assert late.is_set()
    assert one.steps == 5


def test_counters_that_never_come_end_it_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 0.2)
    with fake_engine() as engine:
        engine.count = lambda *given: None  # type: ignore[method-assign]
        with pytest.raises(BenchRefused, match="has counted 0 of them"):
            measured(engine)


def test_an_idle_engine_gives_its_counters() -> None:
    with fake_engine() as engine:
        engine.totals.values["spec_decode_num_drafts_total"] = 4.0
        assert require_idle(EngineApi(engine.url)).drafts == 4.0
