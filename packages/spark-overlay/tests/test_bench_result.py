"""What a bench makes of its samples: medians, spread, ratios pair by pair, a schema; numbers by hand."""

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console
from spark_overlay.bench.errors import BenchRefused
from spark_overlay.bench.plan import Plan, Turn, contexts_for, turns
from spark_overlay.bench.result import BenchResult, figures, sample_figures, schema
from spark_overlay.bench.run import require_used
from spark_overlay.bench.sample import Sample
from spark_overlay.bench.table import render
from spark_overlay.http_api.replies import Model

SCHEMA = Path(__file__).parents[3] / "docs/operations/bench.schema.json"
PLAN = Plan(contexts=(100,), generate=41, repeats=3, seed="0", timeout_s=1.0)


def sample(arm: Any, repeat: int, *, step_ms: float, first_ms: float = 100.0, **changes: Any) -> Sample:
    """A request of 40 decoded tokens; in ON four a step, in OFF one."""
    steps, tokens = (10, 40) if arm == "on" else (40, 40)
    values: dict[str, Any] = {
        "turn": Turn(repeat, changes.pop("context", 100), arm),
        "prompt_tokens": 100,
        "generated_tokens": 41,
        "first_token_s": first_ms / 1000,
        "step_p50_s": step_ms / 1000,
        "steps": steps,
        "seen_steps": steps,
        "step_mean_s": 2 * step_ms / 1000,
        "decode_tokens_per_s": tokens / (steps * 2 * step_ms / 1000),
        "drafts": steps,
        "draft_tokens": 5 * steps,
        "accepted_tokens": 30 if arm == "on" else 0,
    }
    return Sample(**(values | changes))


SAMPLES = [
    sample("off", 0, step_ms=10.0, first_ms=100.0),
    sample("on", 0, step_ms=12.0, first_ms=110.0),
    sample("on", 1, step_ms=15.0, first_ms=90.0),
    sample("off", 1, step_ms=20.0, first_ms=300.0),
    sample("off", 2, step_ms=12.0, first_ms=200.0),
    sample("on", 2, step_ms=18.0, first_ms=200.0),
]


def spread(value: Any) -> tuple[float, float, float]:
    return (round(value.median, 9), round(value.low, 9), round(value.high, 9))


def test_each_arm_has_the_median_and_the_extremes_of_its_repeats() -> None:
    (context,) = figures(SAMPLES, PLAN)
    assert context.context_tokens == 100
    assert context.off.step_p50_ms is not None
    assert spread(context.off.step_p50_ms) == (12.0, 10.0, 20.0)
    assert spread(context.off.first_token_ms) == (200.0, 100.0, 300.0)
    assert spread(context.on.step_mean_ms) == (30.0, 24.0, 36.0)
    # 40 tokens in 10 steps of 30 ms.
    assert spread(context.on.decode_tokens_per_s)[0] == round(40 / 0.3, 9)
    assert (round(context.off.tokens_per_step, 9), round(context.on.tokens_per_step, 9)) == (1.0, 4.0)


def test_ratios_are_of_the_same_repeat_whichever_came_first() -> None:
    (context,) = figures(SAMPLES, PLAN)
    ratios = context.on_over_off
    assert ratios.step_p50 is not None
    assert spread(ratios.step_p50) == (1.2, 0.75, 1.5), "12/10, 15/20, 18/12"
    assert spread(ratios.first_token) == (1.0, 0.3, 1.1), "110/100, 90/300, 200/200"
    # 40 tokens take 10 steps of ON against 40 of OFF: 4 / 1.2, 4 / 0.75, 4 / 1.5.
    assert spread(ratios.decode_tokens_per_s) == (round(4 / 1.2, 9), round(4 / 1.5, 9), round(4 / 0.75, 9))


def test_acceptance_is_of_all_repeats_and_none_where_nothing_was_drafted() -> None:
    undrafted = [sample("off", at, step_ms=1.0, drafts=0, draft_tokens=0) for at in range(3)]
    (context,) = figures([*undrafted, *(one for one in SAMPLES if one.turn.arm == "on")], PLAN)
    assert (context.on.drafts, context.on.draft_tokens, context.on.accepted_tokens) == (30, 150, 90)
    assert (context.on.accepted_per_draft, context.on.accepted_share) == (3.0, 0.6)
    assert (context.off.accepted_per_draft, context.off.accepted_share) == (None, None)


def test_a_step_time_that_one_repeat_did_not_see_is_no_figure() -> None:
    unseen = [*SAMPLES[:-1], sample("on", 2, step_ms=18.0, step_p50_s=None)]
    (context,) = figures(unseen, PLAN)
    assert context.on.step_p50_ms is None
    assert context.on_over_off.step_p50 is None
    assert context.off.step_p50_ms is not None
    assert spread(context.on.step_mean_ms) == (30.0, 24.0, 36.0), "the engine's own clock still counts"


def result(samples: list[Sample]) -> BenchResult:
    return BenchResult(
        overlay="0.1.0",
        url="http://e:1",
        off_url="http://e:1",
        how="one engine, paused and resumed",
        model="m",
        seed="0",
        generated_tokens=41,
        repeats=3,
        started_at=1.0,
        contexts=figures(samples, PLAN),
        samples=sample_figures(samples),
    )


def shown(samples: list[Sample], width: int = 150) -> str:
    written = io.StringIO()
    Console(width=width, file=written).print(render(result(samples)))
    return written.getvalue()


def test_the_table_has_every_figure_with_its_spread() -> None:
    text = shown(SAMPLES)
    assert "12.00 (10.00-20.00)" in text
    assert "1.20 (0.75-1.50)" in text
    assert "medians of 3 repeats (least to greatest); 41 tokens generated each" in text
    assert "not measured" not in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_loses_no_digit_of_the_table(width: int) -> None:
    def digits(text: str) -> int:
        return sum(character.isdigit() for character in text)

    narrow = shown(SAMPLES, width)
    assert "…" not in narrow
    assert digits(narrow) == digits(shown(SAMPLES))
    assert max(map(len, narrow.splitlines())) <= width


def test_the_table_says_what_was_not_measured_and_why() -> None:
    unseen = [*SAMPLES[:-1], sample("on", 2, step_ms=18.0, step_p50_s=None, drafts=0)]
    text = shown(unseen)
    assert text.count("not measured") == 3, "ON, the ratio, and the reason"
    assert "put steps together" in text


def test_a_result_is_what_its_schema_says() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    made = json.loads(result(SAMPLES).model_dump_json())
    validator.validate(made)
    assert len(made["samples"]) == 6
    spoilt: list[dict[str, object]] = [
        {"schema_version": 2},
        {"contexts": [{}]},
        {"repeats": -1},
        {"more": 1},
        {"model": None},
    ]
    for spoil in spoilt:
        assert list(validator.iter_errors(made | spoil)), spoil


def test_the_schema_of_the_documentation_is_the_codes() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema(), (
        "run python -m spark_overlay.bench.result docs/operations/bench.schema.json"
    )


def test_turns_alternate_which_arm_comes_first_and_name_each_prompt_once() -> None:
    made = list(turns(Plan((8, 16), 1, 2, "0", 1.0)))
    assert [(turn.repeat, turn.context, turn.arm) for turn in made] == [
        *((0, 8, "off"), (0, 8, "on"), (0, 16, "on"), (0, 16, "off")),
        *((1, 8, "off"), (1, 8, "on"), (1, 16, "on"), (1, 16, "off")),
    ]
    assert len({turn.name for turn in made}) == 8


def test_with_an_odd_number_of_contexts_each_begins_with_either_arm() -> None:
    firsts = {(turn.context, turn.arm) for turn in list(turns(Plan((8, 16, 32), 1, 2, "0", 1.0)))[::2]}
    assert firsts == {(context, arm) for context in (8, 16, 32) for arm in ("off", "on")}


@pytest.mark.parametrize(
    ("model", "wanted", "expected"),
    [
        (Model("m", 1024), None, (56, 224, 896)),
        (Model("m", 300_000), None, (2048, 8192, 32768)),
        (Model("m", 1024), (700, 3), (700, 3)),
        (Model("m", None), (700,), (700,)),
        (Model("m", 129), None, (1,)),
    ],
)
def test_contexts_fit_the_engine(model: Model, wanted: Any, expected: tuple[int, ...]) -> None:
    assert contexts_for(model, wanted, 128) == expected


@pytest.mark.parametrize(
    ("model", "wanted", "clause"),
    [
        (Model("m", None), None, "does not tell max_model_len"),
        (Model("m", 1024), (897,), "897 prompt tokens and 128 generated ones are more than the 1024 tokens"),
        (Model("m", 128), None, "more than the 128 tokens"),
    ],
)
def test_contexts_that_do_not_fit_are_refused(model: Model, wanted: Any, clause: str) -> None:
    with pytest.raises(BenchRefused) as caught:
        contexts_for(model, wanted, 128)
    assert clause in str(caught.value)


def test_on_without_an_accepted_draft_in_one_context_gives_no_figures() -> None:
    other = [
        sample("off", 0, step_ms=1.0, context=7),
        sample("on", 0, step_ms=1.0, context=7, accepted_tokens=0),
    ]
    require_used(SAMPLES, paused=True)
    with pytest.raises(BenchRefused, match=r"in ON 0\.0% of the drafts were accepted at 7 tokens of context"):
        require_used([*SAMPLES, *other], paused=True)
    undrafted = [sample("on", 0, step_ms=1.0, drafts=0, draft_tokens=0)]
    with pytest.raises(BenchRefused, match=r"in ON 0\.0% of the drafts were accepted at 100 tokens"):
        require_used([SAMPLES[0], *undrafted], paused=False)


def test_drafts_that_are_right_by_chance_are_no_remote_in_use() -> None:
    """An engine without its worker verifies blocks of zeros: on two cores 1 of 305 was right."""
    chance = [sample("on", at, step_ms=1.0, draft_tokens=305, accepted_tokens=1) for at in range(3)]
    off = [one for one in SAMPLES if one.turn.arm == "off"]
    with pytest.raises(BenchRefused, match=r"in ON 0\.3% of the drafts were accepted"):
        require_used([*off, *chance], paused=False)


def test_a_pause_that_changed_nothing_gives_no_figures() -> None:
    same = [sample("off", at, step_ms=1.0, draft_tokens=50, accepted_tokens=25) for at in range(3)]
    on = [one for one in SAMPLES if one.turn.arm == "on"]
    with pytest.raises(BenchRefused, match="50% of the drafts were accepted in OFF and 60% in ON"):
        require_used([*same, *on], paused=True)
    require_used(
        [*same, *on], paused=False
    )  # in resilience the local drafter stands in; so it may in another engine
