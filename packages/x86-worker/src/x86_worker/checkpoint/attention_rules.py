"""Which keys each drafter layer's queries may see: window and causality, by the rules of vLLM 0.32.

Windows: `dflash_config.use_swa` puts every layer on a window unless `layer_types` already names sliding
layers, which then decide alone.  The window is `dflash_config.swa_window_size`, else `sliding_window`.
Causality, first that is stated: `is_causal`, `dflash_config.causal` (both for all layers), else sliding
layers of `layer_types` are causal and the others are not.
"""

from dataclasses import dataclass

from x86_worker.checkpoint.keys import Keys

FULL = "full_attention"
SLIDING = "sliding_attention"
QWEN3_WINDOW = 4096
"""What Transformers' Qwen3 class takes where `use_sliding_window` is true and no window is named."""


@dataclass(frozen=True)
class LayerAttention:
    """What a query at position q sees, among context and block.

    window: None sees every key; W sees keys of (q-W, q+W), itself included.  causal: and none after q.
    """

    window: int | None
    causal: bool

    @property
    def context_rows(self) -> int | None:
        """The most rows before the anchor that the block's queries see, None for all of them."""
        return None if self.window is None else self.window - 1


def layer_attention(keys: Keys, layers: int, *, qwen3_defaults: bool) -> tuple[LayerAttention, ...]:
    """The rule of every layer.

    qwen3_defaults: the configuration is of Transformers' Qwen3 class (not the speculators format), which
    derives missing `layer_types` and ignores `sliding_window` unless `use_sliding_window` is true.
    """
    window = keys.count("sliding_window", 0, low=0) or None
    if qwen3_defaults and not keys.flag("use_sliding_window", False):
        window = None
    elif qwen3_defaults and not keys.names("sliding_window"):
        window = QWEN3_WINDOW
    types = _layer_types(keys, layers, window, derive=qwen3_defaults)
    dflash = keys.section("dflash_config")
    use_swa = dflash.flag("use_swa", False)
    return tuple(
        LayerAttention(
            _window(keys, dflash, window) if _is_sliding(types, layer, use_swa) else None,
            _is_causal(keys, dflash, types, layer),
        )
        for layer in range(layers)
    )


def _layer_types(keys: Keys, layers: int, window: int | None, *, derive: bool) -> tuple[str, ...] | None:
    stated = keys.get("layer_types")
    if stated is None:
        if not derive:
            return None
        first_sliding = keys.count("max_window_layers", 28, low=0)
        return tuple(SLIDING if window and layer >= first_sliding else FULL for layer in range(layers))
    if not isinstance(stated, list) or len(stated) != layers:
        raise keys.refused("layer_types", f"is not a list of num_hidden_layers={layers} names")
    for name in stated:
        if name not in (FULL, SLIDING):
            raise keys.refused("layer_types", f"names {name!r}, and only {FULL} and {SLIDING} are supported")
    return tuple(stated)


def _is_sliding(types: tuple[str, ...] | None, layer: int, use_swa: bool) -> bool:
    if types is None or (use_swa and SLIDING not in types):
        return use_swa
    return types[layer] == SLIDING


def _window(keys: Keys, dflash: Keys, window: int | None) -> int:
    if dflash.get("swa_window_size") is not None:
        return dflash.count("swa_window_size")
    if window is None:
        stated = keys.get("sliding_window")
        reason = "is missing" if stated is None else f"is {stated} but use_sliding_window is not true"
        raise keys.refused("sliding_window", f"{reason}, and a layer is {SLIDING}")
    return window


def _is_causal(keys: Keys, dflash: Keys, types: tuple[str, ...] | None, layer: int) -> bool:
    for stated in (keys.optional_flag("is_causal"), dflash.optional_flag("causal")):
        if stated is not None:
            return stated
    return types is not None and types[layer] == SLIDING
