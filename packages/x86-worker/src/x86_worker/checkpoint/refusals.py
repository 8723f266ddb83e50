"""Keys of a drafter's config.json that change results and that this project does not compute: refused by
name.
"""

from x86_worker.checkpoint.keys import Keys

ROPE_KEYS = frozenset({"rope_type", "type", "rope_theta", "partial_rotary_factor", "attention_factor"})


def check_supported(body: Keys) -> None:
    """Raises CheckpointError naming the first key that asks for something else than plain Qwen3-DSpark."""
    _needs(body, "hidden_act", "silu")
    _needs(body, "markov_head_type", "vanilla")
    _needs(body, "is_neox_style", True)
    for section in (body, body.section("eagle_config"), body.section("dflash_config")):
        _needs(section, "use_aux_hidden_state", True)
    _needs(body, "add_swa_attention_sink_bias", False)
    _absent(body, "quantization_config", "dspark_draft_topk", "mrope_section")
    dflash = body.section("dflash_config")
    _needs(dflash, "attention_sink_bias", False)
    _absent(dflash, "attention_value_scale")
    _check_rope(body)


def _needs(keys: Keys, key: str, only: object) -> None:
    value = keys.get(key)
    if value is not None and value != only:
        raise keys.refused(key, f"is {value!r}, and only {only!r} is supported")


def _absent(keys: Keys, *names: str) -> None:
    for name in names:
        if keys.get(name) is not None:
            raise keys.refused(name, "is not supported")


def _check_rope(body: Keys) -> None:
    """Only plain rotary embedding over the whole head; scaling in its old and new spelling is refused."""
    _needs(body, "partial_rotary_factor", 1.0)
    for name in ("rope_parameters", "rope_scaling"):
        rope = body.section(name)
        for key in ("rope_type", "type"):
            _needs(rope, key, "default")
        _needs(rope, "partial_rotary_factor", 1.0)
        _needs(rope, "attention_factor", 1.0)
        for key in rope.stated():
            if key not in ROPE_KEYS:
                raise rope.refused(key, "is not supported")
