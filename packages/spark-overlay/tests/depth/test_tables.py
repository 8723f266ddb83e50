"""The costs in settings: what is read is what was written, and what cannot be a cost is refused by its place."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.depth.tables import draft_cost, round_table, shown
from spark_overlay.settings import Settings, SettingsError

DIGEST = "0123456789abcdef" * 4
GOOD = {
    "VLLM_DSPARK_REMOTE": "tcp://10.0.0.1:18620",
    "VLLM_DSPARK_REMOTE_IDENTITY": DIGEST,
    "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": DIGEST,
}
costs = st.floats(min_value=1e-9, max_value=1e9, allow_nan=False)


@given(st.lists(costs, min_size=1, max_size=20).map(sorted))
def test_a_table_that_is_shown_is_read_back_digit_by_digit(values: list[float]) -> None:
    assert round_table(shown(values)) == tuple(values)


@given(st.floats())
def test_a_draft_cost_is_taken_exactly_where_it_is_finite_and_not_negative(value: float) -> None:
    if math.isfinite(value) and value >= 0:
        assert draft_cost(repr(value)) == value
    else:
        with pytest.raises(ValueError, match=r"^a finite number "):
            draft_cost(repr(value))


@given(st.text(max_size=30))
def test_any_text_is_a_table_that_could_be_or_a_value_error(text: str) -> None:
    values: tuple[float, ...] = ()
    with contextlib.suppress(ValueError):
        values = round_table(text)
    assert all(math.isfinite(value) and value > 0 for value in values)
    assert sorted(values) == list(values)


def test_spaces_and_equal_neighbours_are_fine() -> None:
    assert round_table(" 33.26, 35.1 ,35.1,40") == (33.26, 35.1, 35.1, 40.0)
    assert draft_cost("0") == 0.0


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("DRAFT_MS", "-0.5", "a finite number of at least 0 is needed, not '-0.5'."),
        ("DRAFT_MS", "nan", "a finite number is needed, not 'nan'."),
        ("DRAFT_MS", "2,5", "a number is needed, not '2,5'."),
        ("ROUND_MS", "30,inf", "a finite number is needed, not 'inf'."),
        ("ROUND_MS", "30,,31", "a number is needed, not ''."),
        ("ROUND_MS", "0,1", "depth 0: a finite number above 0 is needed, not 0."),
        (
            "ROUND_MS",
            "30,31,30.5",
            "depth 2: 30.5 is below depth 1's 31, and verifying more never costs less.",
        ),
    ],
)
@pytest.mark.parametrize("policy", ["capacity", "resilience", "shadow"])
def test_in_every_policy_a_malformed_cost_ends_the_start_by_the_settings_name(
    name: str, value: str, sentence: str, policy: str
) -> None:
    environ = GOOD | {"VLLM_DSPARK_REMOTE_POLICY": policy, f"VLLM_DSPARK_REMOTE_{name}": value}
    with pytest.raises(SettingsError) as refused:
        Settings.from_environ(environ)
    assert refused.value.problems == [f"VLLM_DSPARK_REMOTE_{name}: {sentence}"]
