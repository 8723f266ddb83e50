"""What vLLM itself makes of drafters' config.json files.

python vllm_config.py < CONFIGS.json > RESULTS.json

Reads a list of configurations, writes a list of facts.  A process of its own, since importing vLLM warns
and the suite makes warnings errors.  Nothing of this project is imported here.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def facts(values: dict[str, Any], folder: Path, engine: Any) -> dict[str, Any]:
    """layers: [window, causal] of each, or None where vLLM refuses the windows.  engine: any VllmConfig."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.models.qwen3_dflash import _resolve_layer_attention
    from vllm.transformers_utils.config import get_config, set_default_rope_theta
    from vllm.v1.worker.gpu.spec_decode.utils import get_parallel_drafting_token_id

    (folder / "config.json").write_text(json.dumps(values))
    config = get_config(str(folder), trust_remote_code=False)
    set_default_rope_theta(config, default_theta=1000000)  # as vLLM's drafter layers do
    layers = None
    with contextlib.suppress(ValueError), set_current_vllm_config(engine):
        layers = [_resolve_layer_attention(config, layer) for layer in range(config.num_hidden_layers)]
    return {
        "layers": layers,
        "rope_theta": config.rope_parameters["rope_theta"],
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "mask_token_id": get_parallel_drafting_token_id(config),
        "sample_from_anchor": getattr(config, "sample_from_anchor", True),
        "attention_bias": getattr(config, "attention_bias", False),
        "target_layer_ids": config.target_layer_ids,
    }


def main() -> None:
    """stdout carries the results alone; vLLM's own words go to stderr."""
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:
        from vllm.config import VllmConfig

        engine = VllmConfig()
        results = [facts(values, Path(folder), engine) for values in json.load(sys.stdin)]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
