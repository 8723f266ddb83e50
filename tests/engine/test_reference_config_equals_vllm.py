"""The worker reads a drafter's config.json as vLLM does: both read the same ones here."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from reference.record_blocks import ENGINE_ENVIRONMENT
from reference.tiny_checkpoints import COMMON, FULL, KINDS, SLIDING, drafter_config
from x86_worker.checkpoint import CheckpointError, LayerAttention, parse_drafter_config

pytestmark = pytest.mark.engine

Values = dict[str, Any]

FLAT: Values = drafter_config(KINDS["full"])
LAYERS: Values = COMMON | {"num_hidden_layers": 3}
SPECULATORS: Values = {
    "speculators_model_type": "dspark",
    "architectures": ["DSparkDraftModel"],
    "transformer_layer_config": LAYERS,
    "aux_hidden_state_layer_ids": [1, 2, 4],
    "mask_token_id": 511,
    "markov_rank": 16,
    "block_size": 6,
    "speculators_config": {
        "algorithm": "dspark",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
        "verifier": {"name_or_path": "x", "architectures": []},
    },
}


def without(values: Values, *names: str) -> Values:
    return {key: value for key, value in values.items() if key not in names}


STRIDE = 7
"""Only every seventh combination is tried, for time; 7 divides no number of choices, so each choice meets each."""


def attention_configs() -> list[Values]:
    """Both formats with combinations of the keys that decide windows and causality."""
    choices: dict[str, list[Any]] = {
        "layer_types": [None, [FULL] * 3, [SLIDING, FULL, SLIDING], [SLIDING] * 3],
        "sliding_window": [None, 24],
        "use_sliding_window": [False, True],
        "is_causal": [None, True, False],
        "dflash_config": [
            None,
            {"use_swa": True},
            {"causal": True},
            {"use_swa": True, "causal": False},
            {"swa_window_size": 7},
        ],
        "max_window_layers": [None, 1],
    }
    combinations = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
    stated = [{key: value for key, value in one.items() if value is not None} for one in combinations]
    flat = [FLAT | keys for keys in stated]
    every = flat + [SPECULATORS | {"transformer_layer_config": LAYERS | keys} for keys in stated]
    return every[::STRIDE]


PLAIN_CONFIGS: list[Values] = [
    FLAT,
    FLAT | {"rope_theta": 5e5},
    without(FLAT, "rope_theta"),
    without(FLAT, "rope_theta") | {"rope_parameters": {"rope_theta": 7e5, "rope_type": "default"}},
    FLAT | {"rope_parameters": {"rope_theta": 7e5, "rope_type": "default"}},
    FLAT | {"rope_scaling": {"rope_type": "default"}},
    without(FLAT, "head_dim", "rms_norm_eps"),
    FLAT | {"dflash_config": {"mask_token_id": 3}},
    without(FLAT, "mask_token_id") | {"pard_token": 5},
    FLAT | {"sample_from_anchor": False, "attention_bias": True},
    SPECULATORS,
    SPECULATORS | {"sample_from_anchor": True},
    SPECULATORS | {"transformer_layer_config": without(LAYERS, "head_dim", "rope_theta")},
]


def vllms(configs: list[Values]) -> list[Values]:
    """vLLM's facts of each configuration."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "reference" / "vllm_config.py")],
        input=json.dumps(configs),
        env=os.environ | ENGINE_ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results: list[Values] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def facts() -> list[Values]:
    """Of the attention configurations, then of the plain ones; one process for all."""
    return vllms(attention_configs() + PLAIN_CONFIGS)


def our_layers(values: Values) -> tuple[LayerAttention, ...] | None:
    try:
        return parse_drafter_config(values).layers
    except CheckpointError:
        return None


def test_windows_and_causality_are_vllms_for_combinations_of_all_keys(facts: list[Values]) -> None:
    wrong, found = [], set()
    for values, theirs in zip(attention_configs(), facts, strict=False):
        stated = theirs["layers"]
        layers = stated and tuple(LayerAttention(window, causal=causal) for window, causal in stated)
        found.add(layers)
        if our_layers(values) != layers:
            wrong.append((values, layers, our_layers(values)))
    assert wrong == []
    assert None in found, "some combinations are refused by both"
    assert len(found) > 10


@pytest.mark.parametrize("index", range(len(PLAIN_CONFIGS)))
def test_sizes_rotation_taps_and_mask_token_are_vllms(facts: list[Values], index: int) -> None:
    ours, theirs = parse_drafter_config(PLAIN_CONFIGS[index]), facts[index - len(PLAIN_CONFIGS)]
    names = (
        "rope_theta",
        "head_dim",
        "rms_norm_eps",
        "mask_token_id",
        "sample_from_anchor",
        "attention_bias",
    )
    assert {name: getattr(ours, name) for name in names} == {name: theirs[name] for name in names}
    assert list(ours.target_layer_ids) == theirs["target_layer_ids"]
