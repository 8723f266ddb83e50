"""The drafter's shape from its config.json alone: what HELLO states for an engine that holds no weights.

Pure.  The rules are vLLM 0.32's own for Qwen3-DSpark folders, flat or in the speculators format.  The worker
applies the same ones to the same file, and a test compares the two; what does not matter for the shape is
left to the worker.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_overlay.vllm_seam.errors import SeamError

CONFIG_NAME = "config.json"
SLIDING = "sliding_attention"
FULL = "full_attention"
QWEN3_MAX_WINDOW_LAYERS = 28
"""Transformers' default for Qwen3: with windows on, layers from this one slide where no types are listed."""
QWEN3_WINDOW = 4096
"""Transformers' default for Qwen3: the window with windows on where none is named."""


@dataclass(frozen=True)
class DrafterShape:
    """tap_count: target layers tapped; block_length: draft positions of a block; window: context rows, 0 for
    all.
    """

    tap_count: int
    block_length: int
    window: int


def read_drafter_config(folder: Path) -> dict[str, Any] | None:
    """The parsed config.json of a local drafter folder, None where there is none.  Raises SeamError on bad
    JSON.
    """
    path = folder / CONFIG_NAME
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise SeamError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise SeamError(f"{path} is not a JSON object")
    return values


def drafter_shape(config: Mapping[str, Any]) -> DrafterShape:
    """The shape that a drafter's configuration gives; raises SeamError naming the key that is missing or
    wrong.
    """
    speculators = config.get("speculators_model_type") is not None
    body = _section(config, "transformer_layer_config") if speculators else config
    return DrafterShape(
        tap_count=len(_tapped(config, speculators)),
        block_length=_block_length(config, speculators),
        window=_window(body, qwen3_defaults=not speculators),
    )


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def _tapped(config: Mapping[str, Any], speculators: bool) -> Sequence[Any]:
    """The first list of target layers that vLLM would find."""
    if speculators:
        places = [("aux_hidden_state_layer_ids", config)]
    else:
        dflash, eagle = _section(config, "dflash_config"), _section(config, "eagle_config")
        places = [
            ("eagle_aux_hidden_state_layer_ids", config),
            ("target_layer_ids", dflash),
            ("dspark_target_layer_ids", config),
            ("target_layer_ids", config),
            ("layer_ids", dflash),
            ("layer_ids", eagle),
        ]
    for name, place in places:
        found = place.get(name)
        if isinstance(found, list | tuple) and found:
            return found
    raise SeamError("the drafter's config.json names no target_layer_ids")


def _block_length(config: Mapping[str, Any], speculators: bool) -> int:
    if speculators:
        methods = _section(config, "speculators_config").get("proposal_methods")
        first = methods[0] if isinstance(methods, list) and methods else None
        name = "speculators_config.proposal_methods[0].speculative_tokens"
        value = first.get("speculative_tokens") if isinstance(first, Mapping) else None
    else:
        name = "block_size" if config.get("block_size") is not None else "dspark_block_size"
        value = config.get(name)
    if type(value) is not int or value < 1:
        raise SeamError(f"the drafter's config.json gives {value!r} as {name}, where a count is needed")
    return value


def _window(body: Mapping[str, Any], *, qwen3_defaults: bool) -> int:
    """Most rows before the anchor that any query sees; 0 where some layer sees all of them.

    A layer of window W sees the W-1 positions before the query, so the block's first query, the anchor, sees
    W-1 rows.  A window of one key holds no row at all; it counts as one, since 0 means all.
    """
    dflash = _section(body, "dflash_config")
    stated = body.get("sliding_window") or None
    if qwen3_defaults and not body.get("use_sliding_window", False):
        stated = None
    elif qwen3_defaults and "sliding_window" not in body:
        stated = QWEN3_WINDOW
    if not all(_slides(body, dflash, bool(stated), qwen3_defaults)):
        return 0
    own = dflash.get("swa_window_size")
    width = own if own is not None else stated
    if type(width) is not int or width < 1:
        raise SeamError(f"the drafter's layers slide, but sliding_window in its config.json is {width!r}")
    return max(1, width - 1)


def _slides(body: Mapping[str, Any], dflash: Mapping[str, Any], windows: bool, derive: bool) -> list[bool]:
    """Whether each layer has a window; `use_swa` puts one on all where `layer_types` names none."""
    types = body.get("layer_types")
    if types is None and derive:
        first, layers = (
            body.get("max_window_layers", QWEN3_MAX_WINDOW_LAYERS),
            int(body.get("num_hidden_layers", 1)),
        )
        types = [SLIDING if windows and layer >= first else FULL for layer in range(layers)]
    use_swa = bool(dflash.get("use_swa", False))
    if not types or (use_swa and SLIDING not in types):
        return [use_swa]
    return [kind == SLIDING for kind in types]
