"""The drafter's shape, by vLLM's rules, and the same as the worker reads from the same file."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.shape import DrafterShape, drafter_shape, read_drafter_config
from x86_worker.checkpoint.config import parse_drafter_config
from x86_worker.checkpoint.errors import CheckpointError

FLAT: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"],
    "model_type": "qwen3",
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "block_size": 5,
    "mask_token_id": 511,
    "markov_rank": 16,
    "target_layer_ids": [0, 1, 3],
}
WINDOW_16 = {"use_sliding_window": True, "sliding_window": 16}
SPECULATORS: dict[str, Any] = {
    "speculators_model_type": "dspark",
    "architectures": ["DSparkDraftModel"],
    "aux_hidden_state_layer_ids": [1, 2],
    "mask_token_id": 511,
    "markov_rank": 16,
    "block_size": 9,
    "speculators_config": {"proposal_methods": [{"speculative_tokens": 7}]},
    "transformer_layer_config": {
        key: value
        for key, value in FLAT.items()
        if key.startswith(("vocab", "hidden", "inter", "num", "head"))
    }
    | {"max_position_embeddings": 1024, "model_type": "qwen3"},
}


def test_a_plain_folder_attends_to_everything() -> None:
    assert drafter_shape(FLAT) == DrafterShape(tap_count=3, block_length=5, window=0)


def test_a_speculators_folder_takes_its_block_from_the_proposal_method() -> None:
    assert drafter_shape(SPECULATORS) == DrafterShape(tap_count=2, block_length=7, window=0)


@pytest.mark.parametrize(
    ("change", "window"),
    [
        # Two sliding layers of width 16: the anchor's query sees itself and 15 rows before it.
        ({"layer_types": ["sliding_attention"] * 2} | WINDOW_16, 15),
        # One layer sees everything, so everything must be kept.
        (
            {
                "layer_types": ["sliding_attention", "full_attention"],
                "use_sliding_window": True,
                "sliding_window": 16,
            },
            0,
        ),
        # Transformers' Qwen3 ignores sliding_window unless it is switched on; no layer slides then.
        ({"sliding_window": 16}, 0),
        # Switched on, layers from max_window_layers slide: all two of them from 0, only the second from 1.
        ({"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 0}, 15),
        # Switched on without a width: Transformers' own of 4096.
        ({"use_sliding_window": True, "max_window_layers": 0}, 4095),
        ({"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1}, 0),
        ({"sliding_window": 16, "use_sliding_window": True}, 0),
        # DFlash's own switch puts a window on every layer, with a width of its own.
        ({"dflash_config": {"use_swa": True, "swa_window_size": 8}}, 7),
        # A window of one key holds no row; it counts as one, since 0 means all.
        ({"dflash_config": {"use_swa": True, "swa_window_size": 1}}, 1),
    ],
)
def test_the_window_is_what_the_widest_layer_sees_before_the_anchor(
    change: dict[str, Any], window: int
) -> None:
    assert drafter_shape(FLAT | change).window == window


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"target_layer_ids": []}, "target_layer_ids"),
        ({"block_size": 0}, "block_size"),
        ({"block_size": None}, "dspark_block_size"),
        ({"layer_types": ["sliding_attention"] * 2}, "sliding_window"),
    ],
)
def test_what_is_missing_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(SeamError, match=named):
        drafter_shape(FLAT | change)


def test_a_folder_without_config_gives_none_and_a_broken_one_is_named(tmp_path: Path) -> None:
    assert read_drafter_config(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps(FLAT))
    assert read_drafter_config(tmp_path) == FLAT
    for broken in ("{", "[]"):
        (tmp_path / "config.json").write_text(broken)
        with pytest.raises(SeamError, match=r"config\.json is not"):
            read_drafter_config(tmp_path)


layer_kinds = st.lists(st.sampled_from(["sliding_attention", "full_attention"]), min_size=2, max_size=2)
widths = st.none() | st.integers(1, 64)
dflash = st.fixed_dictionaries(
    {},
    optional={
        "use_swa": st.booleans(),
        "swa_window_size": st.integers(1, 64),
        "target_layer_ids": st.just([0, 2]),
        "layer_ids": st.just([1, 3]),
        "causal": st.booleans(),
    },
)
attention = st.fixed_dictionaries(
    {},
    optional={
        "layer_types": st.none() | layer_kinds,
        "sliding_window": widths,
        "use_sliding_window": st.booleans(),
        "max_window_layers": st.integers(0, 3),
        "dflash_config": dflash,
        "is_causal": st.none() | st.booleans(),
    },
)
taps_and_block = st.fixed_dictionaries(
    {},
    optional={
        "block_size": st.none() | st.integers(0, 64),
        "dspark_block_size": st.none() | st.integers(1, 64),
        "target_layer_ids": st.sampled_from([None, [], [0], [0, 1, 3]]),
        "dspark_target_layer_ids": st.sampled_from([None, [1], [0, 3]]),
        "eagle_aux_hidden_state_layer_ids": st.sampled_from([None, [1, 2]]),
        "eagle_config": st.sampled_from([{}, {"layer_ids": [1]}]),
    },
)


@given(changes=attention, more=taps_and_block, speculators=st.booleans())
@settings(max_examples=400, deadline=None)
def test_whatever_the_worker_serves_has_the_shape_that_the_engine_states(
    changes: dict[str, Any], more: dict[str, Any], speculators: bool
) -> None:
    values = FLAT | changes | more
    if speculators:
        inner = SPECULATORS["transformer_layer_config"] | changes
        values = (
            SPECULATORS
            | {"transformer_layer_config": inner}
            | {k: v for k, v in more.items() if k == "block_size"}
        )
    try:
        worker = parse_drafter_config(values)
    except CheckpointError:
        return  # no session can come of it
    shape = drafter_shape(values)
    assert shape == DrafterShape(len(worker.target_layer_ids), worker.block_length, worker.window)
