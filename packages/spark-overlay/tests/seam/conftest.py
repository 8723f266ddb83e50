"""What the seam's tests share."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from spark_overlay.vllm_seam.refusals import PARALLEL_SIZES


@pytest.fixture
def config() -> Callable[..., SimpleNamespace]:
    """Makes the configuration of an engine that is served, with changes by dotted path (`a__b=value`)."""
    return served_config


def served_config(**changes: Any) -> SimpleNamespace:
    """A configuration that is served, with changes by dotted path."""
    drafter = SimpleNamespace(
        hf_config=SimpleNamespace(dspark_draft_topk=None),
        architectures=["Qwen3DSparkModel"],
        model="org/drafter",
    )
    speculative = SimpleNamespace(
        method="dspark",
        draft_sample_method="greedy",
        rejection_sample_method="standard",
        enable_adaptive_verification=False,
        disable_eagle_block_drop=False,
        draft_model_config=drafter,
    )
    whole = SimpleNamespace(
        speculative_config=speculative,
        use_v2_model_runner=True,
        parallel_config=SimpleNamespace(**dict.fromkeys(PARALLEL_SIZES, 1), tensor_parallel_size=1),
        watermark_config=None,
        load_config=SimpleNamespace(load_format="auto"),
    )
    for path, value in changes.items():
        *parents, name = path.split("__")
        owner: Any = whole
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, value)
    return whole
