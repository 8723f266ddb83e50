"""Every configuration that this release cannot serve is refused in one sentence that names the setting."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.refusals import PARALLEL_SIZES, refusals, refuse

Config = Callable[..., Any]


def test_a_plain_dspark_engine_is_served(config: Config) -> None:
    assert list(refusals(config(), "capacity")) == []
    refuse(config(), "capacity")


@pytest.mark.parametrize(
    ("change", "value", "named"),
    [
        ("speculative_config", None, "speculative_config is missing"),
        ("speculative_config__method", "eagle3", "speculative_config.method is 'eagle3'"),
        ("use_v2_model_runner", False, "VLLM_USE_V2_MODEL_RUNNER"),
        *[(f"parallel_config__{name}", 2, f"{name} is 2") for name in PARALLEL_SIZES],
        (
            "speculative_config__draft_sample_method",
            "probabilistic",
            "draft_sample_method is 'probabilistic'",
        ),
        (
            "speculative_config__rejection_sample_method",
            "synthetic",
            "rejection_sample_method is 'synthetic'",
        ),
        ("speculative_config__draft_model_config__hf_config__dspark_draft_topk", 8, "dspark_draft_topk is 8"),
        ("watermark_config", object(), "watermark_config is set"),
        ("speculative_config__draft_model_config__architectures", ["K3DSparkModel"], "K3DSparkModel"),
    ],
)
def test_what_cannot_be_served_is_refused_alone_and_by_name(
    config: Config, change: str, value: object, named: str
) -> None:
    found = list(refusals(config(**{change: value}), "capacity"))
    assert len(found) == 1
    assert named in found[0]
    with pytest.raises(SeamError, match=r"^spark-overlay: ") as refused:
        refuse(config(**{change: value}), "capacity")
    assert found[0] in str(refused.value)


def test_the_other_ways_of_verifying_and_loading_are_not_refused(config: Config) -> None:
    for served in (
        config(speculative_config__rejection_sample_method="block"),
        config(lora_config=object()),
        config(parallel_config__tensor_parallel_size=4),
        config(speculative_config__disable_eagle_block_drop=True),
        config(speculative_config__draft_model_config__architectures=["Qwen3DSparkModel", "Another"]),
    ):
        assert list(refusals(served, "capacity")) == []


@pytest.mark.parametrize("policy", ["shadow", "resilience"])
def test_policies_with_a_local_drafter_need_the_block_drop_that_capacity_can_do_without(
    config: Config, policy: str
) -> None:
    assert list(refusals(config(), policy)) == []
    (sentence,) = refusals(config(speculative_config__disable_eagle_block_drop=True), policy)
    assert "disable_eagle_block_drop is on" in sentence
    assert policy in sentence


@pytest.mark.parametrize("policy", ["shadow", "resilience"])
def test_policies_with_a_local_drafter_need_its_weights_that_capacity_can_do_without(
    config: Config, tmp_path: Path, policy: str
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    bare = config(speculative_config__draft_model_config__model=str(tmp_path))
    assert list(refusals(bare, policy)) == [
        f"policy {policy!r} needs the drafter's weights, and {tmp_path} holds none"
    ]
    assert list(refusals(bare, "capacity")) == []


@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "pytorch_model.bin", "drafter.pt"])
def test_a_drafter_with_weights_of_any_kind_that_vllm_reads_is_served(
    config: Config, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).touch()
    assert list(refusals(config(speculative_config__draft_model_config__model=str(tmp_path)), "shadow")) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"speculative_config__draft_model_config__model": "org/drafter"},
        {"load_config__load_format": "dummy"},
        {"load_config__load_format": "tensorizer"},
        {"speculative_config__draft_load_config": SimpleNamespace(load_format="dummy")},
    ],
)
def test_weights_that_vllm_finds_elsewhere_are_left_to_it(
    config: Config, tmp_path: Path, changes: dict[str, object]
) -> None:
    given = {"speculative_config__draft_model_config__model": str(tmp_path)} | changes
    assert list(refusals(config(**given), "shadow")) == []


def test_what_an_older_version_cannot_even_be_set_to_is_not_refused(config: Config) -> None:
    older = config()
    del older.speculative_config.enable_adaptive_verification
    del older.speculative_config.disable_eagle_block_drop
    del older.parallel_config.prefill_context_parallel_size
    del older.watermark_config
    assert list(refusals(older, "shadow")) == []
