"""An engine that asks for the remote drafter and cannot have it does not start, and says why.

Every refusal comes before a device is touched, so one process tries them one after the other.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import Engine, dspark, engine_environment
from reference.tiny_checkpoints import BLOCK, KINDS, make_pair

pytestmark = pytest.mark.engine

SWITCH = "VLLM_DSPARK_REMOTE"
OVERLAY = {
    SWITCH: "tcp://127.0.0.1:9",
    f"{SWITCH}_IDENTITY": "0" * 64,
    f"{SWITCH}_MARKOV_IDENTITY": "0" * 64,
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A drafter folder with config.json only, and the target's."""
    folder = tmp_path_factory.mktemp("pair")
    drafter, target = make_pair(folder, KINDS["sliding"])
    (folder / "config-only").mkdir()
    shutil.copy(drafter / "config.json", folder / "config-only")
    return folder / "config-only", target


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A process whose environment asks for the remote drafter; no engine is up in it."""
    with Engine(tmp_path_factory.mktemp("engine") / "log", engine_environment(**OVERLAY)) as process:
        yield process


def arguments(target: Path, **more: Any) -> dict[str, Any]:
    return {
        "model": str(target),
        "max_model_len": 256,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
    } | more


NGRAM = {"method": "ngram_gpu", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 2}


@pytest.mark.parametrize(
    ("speculative", "sentence"),
    [
        (
            None,
            "spark-overlay: speculative_config is missing: VLLM_DSPARK_REMOTE needs it with method 'dspark'",
        ),
        (NGRAM, "spark-overlay: speculative_config.method is 'ngram_gpu': VLLM_DSPARK_REMOTE needs 'dspark'"),
        (
            {"draft_sample_method": "probabilistic"},
            "spark-overlay: draft_sample_method is 'probabilistic': the remote drafter is greedy only",
        ),
        (
            {"dspark_draft_topk": 8},
            "spark-overlay: dspark_draft_topk is 8: the remote drafter scores every token",
        ),
        (
            {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0},
            "spark-overlay: rejection_sample_method is 'synthetic': it would accept a failed round's zeros",
        ),
        (
            {"num_speculative_tokens": BLOCK + 1},
            f"spark-overlay: num_speculative_tokens is {BLOCK + 1}, more than the drafter's block of {BLOCK}",
        ),
    ],
)
def test_what_cannot_be_drafted_remotely_ends_the_start_with_its_sentence(
    engine: Engine, pair: tuple[Path, Path], speculative: dict[str, Any] | None, sentence: str
) -> None:
    drafter, target = pair
    if speculative is not None and "method" not in speculative:
        speculative = dspark(drafter, BLOCK) | speculative
    answer = engine.start(**arguments(target, speculative_config=speculative))
    assert (answer["event"], answer["kind"], answer["text"]) == ("refused", "SeamError", sentence)


def test_the_v1_model_runner_ends_the_start(engine: Engine, pair: tuple[Path, Path]) -> None:
    drafter, target = pair
    speculative = dspark(drafter, BLOCK)
    answer = engine.start(
        {"VLLM_USE_V2_MODEL_RUNNER": "0"}, **arguments(target, speculative_config=speculative)
    )
    engine.order(environment={"VLLM_USE_V2_MODEL_RUNNER": "1"})
    assert answer["event"] == "refused"
    assert "Model Runner V1 does not support: dspark" in answer["text"]


def test_after_refusals_the_same_process_still_cannot_get_a_stock_engine(
    engine: Engine, pair: tuple[Path, Path]
) -> None:
    """The guard holds where the rebinding is undone: the runner then builds vLLM's own speculator."""
    drafter, target = pair
    engine.order(stock=True)
    answer = engine.start(**arguments(target, speculative_config=dspark(drafter, BLOCK)))
    assert (answer["event"], answer["kind"]) == ("refused", "SeamError")
    assert "holds a DSparkSpeculator instead of the remote drafter's" in answer["text"]


def test_a_bad_setting_ends_the_start_however_often_it_is_tried(
    tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    drafter, target = pair
    environment = engine_environment(**OVERLAY, VLLM_DSPARK_REMOTE_TIMEOUT_MS="0")
    with Engine(tmp_path / "log", environment) as process:
        for _ in range(2):
            answer = process.start(**arguments(target, speculative_config=dspark(drafter, BLOCK)))
            assert (answer["event"], answer["kind"]) == ("refused", "SettingsError")
            assert "VLLM_DSPARK_REMOTE_TIMEOUT_MS" in answer["text"]


def test_with_the_plugin_left_out_an_engine_without_drafter_weights_does_not_start(
    tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    drafter, target = pair
    environment = engine_environment(**OVERLAY, VLLM_PLUGINS="triton_cpu_interpreter")
    with Engine(tmp_path / "log", environment) as process:
        answer = process.start(**arguments(target, speculative_config=dspark(drafter, BLOCK)))
        assert answer["event"] == "refused"
        assert "Cannot find any model weights" in answer["text"]
