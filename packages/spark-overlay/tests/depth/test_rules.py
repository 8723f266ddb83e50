"""An engine that prices depths starts with both remote costs or not at all; others need none."""

import pytest
from spark_overlay.depth.rules import Costs, depth_policy, overrides, problems

K = 5
TABLE = (30.0, 31.0, 32.0, 33.0, 34.0, 35.0)
BOTH, NONE = Costs(2.5, TABLE), Costs()
FILE = {"VLLM_DSPARK_DEPTH_FILE": "/x/depth"}


def said(
    costs: Costs, policy: str | None, more: dict[str, str] | None = None, local: bool = False
) -> list[str]:
    environ = ({} if policy is None else {"VLLM_DSPARK_DEPTH_POLICY": policy}) | (more or {})
    return list(problems(costs, environ, K, local_costs=local))


@pytest.mark.parametrize("policy", [None, "", "off", "fixed:3"])
def test_an_engine_that_prices_no_depth_needs_no_cost(policy: str | None) -> None:
    for costs in (NONE, BOTH, Costs(draft_ms=1.0), Costs(round_ms=TABLE)):
        assert said(costs, policy) == []


@pytest.mark.parametrize("policy", ["conf", "confb", "conf:30,31,32,33,34,35"])
@pytest.mark.parametrize(
    ("costs", "missing"),
    [
        (NONE, "VLLM_DSPARK_REMOTE_DRAFT_MS and VLLM_DSPARK_REMOTE_ROUND_MS"),
        (Costs(round_ms=TABLE), "VLLM_DSPARK_REMOTE_DRAFT_MS"),
        (Costs(draft_ms=0.0), "VLLM_DSPARK_REMOTE_ROUND_MS"),
    ],
)
def test_an_engine_that_prices_depths_names_each_cost_that_is_missing(
    policy: str, costs: Costs, missing: str
) -> None:
    (sentence,) = said(costs, policy)
    assert sentence.startswith(f"VLLM_DSPARK_DEPTH_POLICY is {policy!r}: ")
    assert f"so {missing} must be set" in sentence
    assert said(BOTH, policy) == []


def test_a_fixed_depth_that_a_file_may_change_needs_both_costs_too() -> None:
    (sentence,) = said(Costs(draft_ms=1.0), "fixed:3", FILE)
    assert "VLLM_DSPARK_DEPTH_FILE may change it" in sentence
    assert "so VLLM_DSPARK_REMOTE_ROUND_MS must be set" in sentence
    assert said(BOTH, "fixed:3", FILE) == []
    assert said(NONE, "off", FILE) == []
    assert said(NONE, None, FILE) == []


def test_a_table_inside_the_policys_own_text_is_refused_whatever_costs_are_given() -> None:
    (sentence,) = said(BOTH, "confr:1,2,3")
    assert "'confr:1,2,3'" in sentence
    assert "use conf or confb" in sentence


def test_an_unknown_depth_policy_is_refused_by_its_name() -> None:
    (sentence,) = said(BOTH, "cleverest")
    assert sentence == "VLLM_DSPARK_DEPTH_POLICY is 'cleverest': known are conf, confb, fixed:<depth> and off"


@pytest.mark.parametrize("values", [(30.0,), TABLE[:-1], (*TABLE, 36.0)])
def test_a_table_of_another_length_than_the_engines_depths_is_refused_with_both_numbers(
    values: tuple[float, ...],
) -> None:
    for policy in (None, "off", "conf"):
        (sentence,) = said(Costs(2.5, values), policy)
        assert sentence == (
            f"VLLM_DSPARK_REMOTE_ROUND_MS has {len(values)} values: depths 0 to 5 of this engine need exactly 6"
        )


@pytest.mark.parametrize("policy", ["conf", "confr:1,2", "cleverest"])
def test_where_a_local_drafter_runs_in_every_step_nothing_is_needed_and_nothing_replaced(policy: str) -> None:
    for costs in (NONE, BOTH, Costs(1.0, (1.0,))):
        assert said(costs, policy, local=True) == []
        assert overrides(costs, local_costs=True) == {}


def test_each_cost_that_is_given_replaces_the_engines_own_alone() -> None:
    assert overrides(BOTH, local_costs=False) == {
        "VLLM_DSPARK_DRAFT_MS": "2.5",
        "VLLM_DSPARK_ROUND_MS": "30.0,31.0,32.0,33.0,34.0,35.0",
    }
    assert overrides(Costs(draft_ms=0.0), local_costs=False) == {"VLLM_DSPARK_DRAFT_MS": "0.0"}
    assert overrides(NONE, local_costs=False) == {}


@pytest.mark.parametrize(
    ("text", "kind"),
    [("conf", "conf"), ("fixed:3", "fixed"), (" conf : 1", "conf"), ("", "off"), (":1", "off")],
)
def test_a_depth_policys_kind_stands_before_its_colon(text: str, kind: str) -> None:
    assert depth_policy({"VLLM_DSPARK_DEPTH_POLICY": text}) == kind
