"""A drafter's config.json is read by vLLM's rules, and what we do not compute is refused by name.

That the rules are vLLM's is checked on vLLM itself in tests/engine/test_reference_config_equals_vllm.py.
"""

from typing import Any

import pytest
from checkpoint_folders import DRAFTER_CONFIG
from x86_worker.checkpoint import CheckpointError, DrafterConfig, LayerAttention, parse_drafter_config

FULL, SLIDING = "full_attention", "sliding_attention"
WINDOWED = {"sliding_window": 8, "use_sliding_window": True, "layer_types": [SLIDING, FULL]}


def parsed(**changes: Any) -> DrafterConfig:
    return parse_drafter_config(DRAFTER_CONFIG | changes)


def test_a_plain_configuration_gives_the_facts_of_its_mathematics() -> None:
    config = parsed()
    assert config.layers == (LayerAttention(None, causal=False),) * 2
    assert (config.row_elements, config.window, config.queries_per_block) == (8, 0, 5)
    assert (config.rope_theta, config.rms_norm_eps, config.logit_scale) == (10000.0, 1e-6, 1.0)
    assert (config.draft_vocab_size, config.target_hidden_size, config.dtype) == (10, 4, "bfloat16")
    assert config.sample_from_anchor
    assert not config.attention_bias


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        (WINDOWED, [(8, True), (None, False)]),
        (WINDOWED | {"is_causal": False}, [(8, False), (None, False)]),
        (WINDOWED | {"dflash_config": {"causal": True}}, [(8, True), (None, True)]),
        (WINDOWED | {"is_causal": False, "dflash_config": {"causal": True}}, [(8, False), (None, False)]),
        (WINDOWED | {"dflash_config": {"swa_window_size": 5}}, [(5, True), (None, False)]),
        (WINDOWED | {"dflash_config": {"use_swa": True}}, [(8, True), (None, False)]),
        (
            WINDOWED | {"layer_types": [FULL, FULL], "dflash_config": {"use_swa": True}},
            [(8, False), (8, False)],
        ),
        ({"sliding_window": 8, "layer_types": [FULL, FULL]}, [(None, False)] * 2),
        ({"sliding_window": 8, "use_sliding_window": True}, [(None, False)] * 2),
        (
            {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1},
            [(None, False), (8, True)],
        ),
        ({"is_causal": True}, [(None, True)] * 2),
        ({"use_sliding_window": True, "layer_types": [SLIDING, FULL]}, [(4096, True), (None, False)]),
    ],
)
def test_windows_and_causality_follow_the_keys_in_vllms_order(changes: Any, layers: Any) -> None:
    assert parsed(**changes).layers == tuple(
        LayerAttention(window, causal=causal) for window, causal in layers
    )


def test_the_window_is_the_rows_before_the_anchor_and_zero_with_any_full_layer() -> None:
    assert parsed(**WINDOWED).window == 0
    assert parsed(**WINDOWED | {"layer_types": [SLIDING, SLIDING]}).window == 7
    assert parsed(**WINDOWED | {"layer_types": [SLIDING, SLIDING], "sliding_window": 1}).window == 1


SPECULATORS = {
    "speculators_model_type": "dspark",
    "architectures": ["DSparkDraftModel"],
    "transformer_layer_config": {
        key: value
        for key, value in DRAFTER_CONFIG.items()
        if key
        not in (
            "architectures",
            "target_layer_ids",
            "mask_token_id",
            "block_size",
            "markov_rank",
            "torch_dtype",
        )
    },
    "aux_hidden_state_layer_ids": [1, 3],
    "mask_token_id": 9,
    "markov_rank": 3,
    "block_size": 6,
    "enable_confidence_head": False,
    "speculators_config": {"proposal_methods": [{"speculative_tokens": 5}]},
    "dtype": "float32",
}


def test_the_speculators_format_is_read_in_its_own_words() -> None:
    config = parse_drafter_config(SPECULATORS)
    assert config.target_layer_ids == (0, 2)
    assert not config.sample_from_anchor
    assert (config.block_length, config.queries_per_block) == (5, 6)
    assert config.rope_theta == 1e6
    assert not config.confidence
    assert config.dtype == "float32"
    anchored = parse_drafter_config(SPECULATORS | {"sample_from_anchor": True})
    assert anchored.queries_per_block == 5


def test_the_speculators_format_knows_no_use_sliding_window_and_may_lack_layer_types() -> None:
    layers = {"sliding_window": 8, "dflash_config": {"use_swa": True}}
    inner = SPECULATORS["transformer_layer_config"]
    config = parse_drafter_config(SPECULATORS | {"transformer_layer_config": inner | layers})  # type: ignore[operator]
    assert config.layers == (LayerAttention(8, causal=False),) * 2


@pytest.mark.parametrize(
    ("changes", "theta"),
    [
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_theta": 7e5, "rope_type": "default"}}, 7e5),
        ({"rope_parameters": {"rope_theta": 7e5}, "rope_theta": 3e4}, 7e5),
        ({"rope_scaling": {"type": "default"}, "rope_theta": 3e4}, 3e4),
    ],
)
def test_rope_theta_is_found_in_its_old_and_new_place(changes: Any, theta: float) -> None:
    assert parsed(**changes).rope_theta == theta


@pytest.mark.parametrize(
    ("changes", "ids"),
    [
        ({"dflash_config": {"target_layer_ids": [1, 2]}}, (1, 2)),
        ({"dspark_target_layer_ids": [0, 1]}, (0, 1)),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, (0, 1, 2)),
        ({"target_layer_ids": None, "dflash_config": {"layer_ids": [2, 3]}}, (1, 2)),
        ({"target_layer_ids": None, "eagle_config": {"layer_ids": [2]}}, (1,)),
    ],
)
def test_tap_layers_are_the_first_list_that_vllm_would_find(changes: Any, ids: tuple[int, ...]) -> None:
    assert parsed(**changes).target_layer_ids == ids


@pytest.mark.parametrize(
    ("changes", "mask"),
    [
        ({"dflash_config": {"mask_token_id": 3}}, 3),
        ({"mask_token_id": None, "dspark_noise_token_id": 4}, 4),
        ({"mask_token_id": None, "pard_token": 5}, 5),
        ({"mask_token_id": None, "ptd_token_id": 6}, 6),
    ],
)
def test_the_mask_token_is_the_first_that_vllm_would_find(changes: Any, mask: int) -> None:
    assert parsed(**changes).mask_token_id == mask


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["Gemma4DSparkModel"]}, "architectures is ['Gemma4DSparkModel']"),
        ({"architectures": None}, "architectures is None"),
        ({"model_type": "qwen2"}, "model_type is 'qwen2'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', and only 'silu' is supported"),
        ({"markov_head_type": "rnn"}, "markov_head_type is 'rnn'"),
        ({"is_neox_style": False}, "is_neox_style is False"),
        ({"use_aux_hidden_state": False}, "use_aux_hidden_state is False"),
        ({"dflash_config": {"use_aux_hidden_state": False}}, "dflash_config.use_aux_hidden_state is False"),
        ({"add_swa_attention_sink_bias": True}, "add_swa_attention_sink_bias is True"),
        ({"dflash_config": {"attention_sink_bias": True}}, "dflash_config.attention_sink_bias is True"),
        (
            {"dflash_config": {"attention_value_scale": 2.0}},
            "dflash_config.attention_value_scale is not supported",
        ),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is not supported"),
        ({"dspark_draft_topk": 4}, "dspark_draft_topk is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling.rope_type is 'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_scaling.type is 'linear'"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope_parameters.rope_type is 'llama3'"),
        ({"rope_parameters": {"mrope_section": [1, 1]}}, "rope_parameters.mrope_section is not supported"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters.full_attention is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"layer_types": [SLIDING, FULL]}, "sliding_window is missing, and a layer is sliding_attention"),
        ({"layer_types": [SLIDING, FULL], "sliding_window": 8}, "use_sliding_window is not true"),
        ({"layer_types": [FULL]}, "layer_types is not a list of num_hidden_layers=2 names"),
        ({"layer_types": [FULL, "chunked_attention"]}, "layer_types names 'chunked_attention'"),
        ({"target_layer_ids": [2, 0]}, "target_layer_ids is [2, 0] where ascending numbers"),
        ({"target_layer_ids": [1, 1]}, "target_layer_ids is [1, 1] where ascending numbers"),
        ({"target_layer_ids": []}, "target_layer_ids is missing"),
        ({"target_layer_ids": ["0"]}, "target_layer_ids is ['0'] where a list of integers"),
        ({"mask_token_id": None}, "mask_token_id is missing"),
        ({"mask_token_id": 10}, "mask_token_id is 10, outside the vocabulary of 10"),
        ({"block_size": None}, "block_size is missing"),
        ({"block_size": 65}, "block_size is 65 where at most 64"),
        ({"block_size": True}, "block_size is True where an integer"),
        ({"markov_rank": 0}, "markov_rank is 0 where an integer of at least 1"),
        ({"hidden_size": 4.0}, "hidden_size is 4.0 where an integer"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3, which does not divide 2 heads"),
        ({"head_dim": 3}, "head_dim is 3 where rotary embedding needs an even number"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan where a finite number above 0"),
        ({"attention_bias": 1}, "attention_bias is 1 where true or false"),
        ({"dflash_config": []}, "dflash_config is not an object"),
        ({"torch_dtype": "float8"}, "torch_dtype is 'float8'"),
        ({"speculators_model_type": "eagle3"}, "speculators_model_type is 'eagle3'"),
        ({"speculators_model_type": "dspark"}, "transformer_layer_config is not an object"),
    ],
)
def test_what_cannot_be_computed_is_refused_with_the_file_and_the_key(changes: Any, message: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        parsed(**changes)
    assert str(refusal.value).startswith("config.json: ")
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aux_hidden_state_layer_ids": None}, "aux_hidden_state_layer_ids is missing"),
        ({"aux_hidden_state_layer_ids": [0, 1]}, "eagle_aux_hidden_state_layer_ids is [0, 1]"),
        ({"speculators_config": {}}, "speculators_config.proposal_methods[0].speculative_tokens is missing"),
        ({"architectures": ["Qwen3OmniDSparkModel"]}, "architectures is ['Qwen3OmniDSparkModel']"),
    ],
)
def test_what_the_speculators_format_lacks_is_refused_by_name(changes: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: ") as refusal:
        parse_drafter_config(SPECULATORS | changes)
    assert message in str(refusal.value)


def test_the_canonical_configuration_ignores_what_changes_no_result() -> None:
    plain = parsed().canonical()
    assert parsed(rope_theta=10000, _name_or_path="x", use_cache=True, block_size=3).canonical() == plain
    assert parsed(rope_theta=10001.0).canonical() != plain
    assert parsed(**WINDOWED).canonical() != plain
