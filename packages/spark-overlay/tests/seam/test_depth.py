"""Depth on the engine's side: what is refused, what the engine's own policy is told, and what stock's tables become."""

import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.depth import (
    check_version,
    check_worker,
    decisive_costs,
    prepare,
    price_drafts,
    refusals,
    takes_remote_confidences,
)
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.guard import guard
from spark_overlay.vllm_seam.versions import SEAMS

Config = Callable[..., Any]
DIGEST = "0123456789abcdef" * 4
ADAPTIVE = {
    "speculative_config__enable_adaptive_verification": True,
    "speculative_config__draft_model_config__hf_config__enable_confidence_head": True,
}
TABLE = "30,31,32,33,34,35"


def settings(**given: str) -> Settings:
    """Good settings and more, by names without the prefix."""
    environ = {
        "VLLM_DSPARK_REMOTE": "tcp://10.0.0.1:18620",
        "VLLM_DSPARK_REMOTE_IDENTITY": DIGEST,
        "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": DIGEST,
    }
    made = Settings.from_environ(
        environ | {f"VLLM_DSPARK_REMOTE_{name}": value for name, value in given.items()}
    )
    assert made is not None
    return made


@pytest.fixture
def engine(config: Config) -> Config:
    """Makes an engine's configuration of five drafts, with changes by dotted path."""
    return lambda **changes: config(speculative_config__num_speculative_tokens=5, **changes)


@pytest.mark.parametrize("policy", ["capacity", "resilience"])
def test_both_costs_are_in_the_environment_before_a_model_runner_exists(engine: Config, policy: str) -> None:
    environ = {
        "VLLM_DSPARK_DEPTH_POLICY": "conf",
        "VLLM_DSPARK_ROUND_MS": "33,36",
        "VLLM_DSPARK_DRAFT_MS": "0",
    }
    given = settings(POLICY=policy, DRAFT_MS="2.5", ROUND_MS=TABLE)
    for _ in range(2):
        prepare(engine(), given, environ)
        assert environ["VLLM_DSPARK_DRAFT_MS"] == "2.5"
        assert environ["VLLM_DSPARK_ROUND_MS"] == "30.0,31.0,32.0,33.0,34.0,35.0"


def test_an_engine_whose_depth_policy_lacks_a_cost_is_refused_and_nothing_is_replaced(engine: Config) -> None:
    environ = {"VLLM_DSPARK_DEPTH_POLICY": "conf", "VLLM_DSPARK_DRAFT_MS": "0"}
    with pytest.raises(SeamError, match=r"VLLM_DSPARK_REMOTE_ROUND_MS must be set"):
        prepare(engine(), settings(DRAFT_MS="2.5"), environ)
    assert environ["VLLM_DSPARK_DRAFT_MS"] == "0"


def test_shadow_keeps_the_local_figures(engine: Config) -> None:
    environ = {"VLLM_DSPARK_DEPTH_POLICY": "confr:1,2", "VLLM_DSPARK_DRAFT_MS": "0"}
    before = dict(environ)
    prepare(engine(), settings(POLICY="shadow", DRAFT_MS="2.5", ROUND_MS="1,2"), environ)
    assert environ == before


@pytest.mark.parametrize(
    ("given", "changes", "environ", "named"),
    [
        ({}, {}, {}, "VLLM_DSPARK_REMOTE_DRAFT_MS must say what a remote round costs"),
        (
            {"DRAFT_MS": "2"},
            {"speculative_config__draft_model_config__hf_config__enable_confidence_head": False},
            {},
            "has no confidence head",
        ),
        (
            {"DRAFT_MS": "2", "ROUND_MS": TABLE},
            {},
            {"VLLM_DSPARK_DEPTH_POLICY": "conf"},
            "VLLM_DSPARK_DEPTH_POLICY is 'conf': one of them alone can choose the depth",
        ),
    ],
)
@pytest.mark.parametrize("policy", ["capacity", "resilience"])
def test_adaptive_verification_that_cannot_work_is_refused_alone_and_by_name(
    engine: Config,
    given: dict[str, str],
    changes: dict[str, Any],
    environ: dict[str, str],
    named: str,
    policy: str,
) -> None:
    (sentence,) = refusals(engine(**(ADAPTIVE | changes)), settings(POLICY=policy, **given), environ)
    assert sentence.startswith("enable_adaptive_verification is on")
    assert named in sentence


def test_a_drafter_whose_config_does_not_speak_of_a_confidence_head_has_none(engine: Config) -> None:
    adaptive = engine(speculative_config__enable_adaptive_verification=True)
    (sentence,) = refusals(adaptive, settings(DRAFT_MS="2"), {})
    assert "this drafter's config.json has no confidence head" in sentence


@pytest.mark.parametrize("policy", ["capacity", "resilience"])
def test_adaptive_verification_with_a_head_and_a_cost_is_served(engine: Config, policy: str) -> None:
    assert list(refusals(engine(**ADAPTIVE), settings(POLICY=policy, DRAFT_MS="0"), {})) == []


def test_a_shadow_that_verifies_local_drafts_is_stocks_own_and_one_that_verifies_remote_ones_needs_the_head(
    engine: Config,
) -> None:
    headless = engine(speculative_config__enable_adaptive_verification=True)
    local, remote = settings(POLICY="shadow"), settings(POLICY="shadow", SHADOW_USE="remote")
    assert list(refusals(headless, local, {})) == []
    assert len(list(refusals(headless, remote, {}))) == 1
    assert list(refusals(engine(**ADAPTIVE), remote, {})) == []
    assert (takes_remote_confidences(local), takes_remote_confidences(remote)) == (False, True)


def test_a_vllm_without_adaptive_verification_is_refused_by_its_version(engine: Config) -> None:
    assert [version for version, seam in SEAMS.items() if not seam.adaptive] == ["0.26.0"]
    check_version(engine(), "0.26.0", known=False)
    check_version(engine(**ADAPTIVE), "0.30.0", known=True)
    with pytest.raises(SeamError, match=r"vLLM 0\.26\.0 has no adaptive verification"):
        check_version(engine(**ADAPTIVE), "0.26.0", known=False)


def test_what_decides_the_depth_is_compared_between_ranks_however_long_it_is(engine: Config) -> None:
    speculative = engine(**ADAPTIVE).speculative_config
    environ = {"VLLM_DSPARK_DEPTH_POLICY": "conf", "VLLM_DSPARK_DEPTH_FILE": "/x/" + "\udcff" * 4000}
    given = settings(DRAFT_MS="2.5", ROUND_MS=TABLE)
    found = decisive_costs(speculative, given, environ)
    assert found["VLLM_DSPARK_REMOTE_DRAFT_MS"] == "2.5"
    assert found["VLLM_DSPARK_REMOTE_ROUND_MS"] == "(30.0, 31.0, 32.0, 33.0, 34.0, 35.0)"
    assert found["VLLM_DSPARK_DEPTH_POLICY"] == "conf"
    assert found["enable_adaptive_verification"] == "True"
    assert len(json.dumps(found)) < 700
    longer = environ | {"VLLM_DSPARK_DEPTH_FILE": environ["VLLM_DSPARK_DEPTH_FILE"] + "x"}
    assert decisive_costs(speculative, given, longer) != found
    many = "1," * 40
    assert decisive_costs(speculative, settings(ROUND_MS=f"{many}2"), {}) != decisive_costs(
        speculative, settings(ROUND_MS=f"{many}3"), {}
    )
    assert decisive_costs(None, settings(), {})["enable_adaptive_verification"] == "False"


def runner(*, adaptive: bool = True, manager: Any = None) -> Any:
    return SimpleNamespace(
        speculative_config=SimpleNamespace(enable_adaptive_verification=adaptive),
        adaptive_verification=manager,
    )


def profiled() -> Any:
    return SimpleNamespace(cost_tables=(np.array([0.0, 0.5, 0.75]), np.array([9.0, 9.5, 10.0, 10.5])))


@pytest.mark.parametrize("policy", ["capacity", "resilience"])
def test_only_the_draft_costs_are_replaced(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    manager = profiled()
    before = manager.cost_tables
    with caplog.at_level(logging.INFO):
        price_drafts(runner(manager=manager), settings(POLICY=policy, DRAFT_MS="2.5"))
    draft, verify = manager.cost_tables
    assert draft.tolist() == [2.5, 2.5, 2.5]
    assert verify is before[1]
    assert before[0].tolist() == [0.0, 0.5, 0.75]
    assert "a draft costs 2.5 ms (VLLM_DSPARK_REMOTE_DRAFT_MS) instead of the profiled 0.75 ms" in caplog.text


@pytest.mark.parametrize("use", ["local", "remote"])
def test_a_shadow_keeps_the_profiled_costs(use: str) -> None:
    manager = profiled()
    before = manager.cost_tables
    price_drafts(runner(manager=manager), settings(POLICY="shadow", SHADOW_USE=use, DRAFT_MS="2.5"))
    assert manager.cost_tables is before


def test_without_adaptive_verification_nothing_of_it_is_touched() -> None:
    price_drafts(runner(adaptive=False, manager=object()), settings(DRAFT_MS="2.5"))


@pytest.mark.parametrize(
    ("manager", "lack"),
    [
        (None, "no adaptive verification"),
        (SimpleNamespace(cost_tables=None), "no profiled costs of verifying"),
    ],
)
def test_an_engine_that_came_up_without_what_was_asked_for_does_not_serve(manager: Any, lack: str) -> None:
    with pytest.raises(SeamError, match=f"the engine came up with {lack}$"):
        price_drafts(runner(manager=manager), settings(DRAFT_MS="2.5"))


def test_a_worker_without_confidences_ends_the_start_where_they_are_needed() -> None:
    stats = {"connected": True, "endpoint": "tcp://10.0.0.1:18620", "worker": {"confidence": False}}
    with pytest.raises(SeamError, match=r"the worker at tcp://10\.0\.0\.1:18620 sends none$"):
        check_worker(runner(), settings(), stats)
    check_worker(runner(adaptive=False), settings(), stats)
    check_worker(runner(), settings(POLICY="shadow"), stats)
    for fine in ({"worker": {"confidence": True}}, {"worker": None}, {"connected": False}):
        check_worker(runner(), settings(), stats | fine)


def test_the_guard_prepares_an_engine_after_its_refusals_and_before_its_device(config: Config) -> None:
    """What is prepared is of the engine that was asked for last in the process."""
    seen: list[object] = []

    class Wrapper:
        vllm_config = config(use_v2_model_runner=False)

        def init_device(self) -> None:
            seen.append("device")

        def compile_or_warm_up_model(self) -> None: ...

        def shutdown(self) -> None: ...

    guard(Wrapper, "capacity", lambda given: seen.append("an older one"))
    guard(Wrapper, "capacity", seen.append)
    wrapped = Wrapper()
    with pytest.raises(SeamError, match="VLLM_USE_V2_MODEL_RUNNER"):
        wrapped.init_device()
    assert seen == []
    wrapped.vllm_config = served = config()
    with pytest.raises(SeamError, match="no speculator"):
        wrapped.init_device()
    assert seen == [served, "device"]
