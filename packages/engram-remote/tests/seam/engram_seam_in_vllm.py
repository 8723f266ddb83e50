"""Run by a test in a process of its own: a real vLLM, its plugin's function called, its Engram asked for an embedding.

    engram_seam_in_vllm.py FOLDER imported|not-imported    FOLDER: tables of `model_config()` for one rank

Prints one JSON object about what was found.  Only the device and the engine's configuration are stood in for.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

COMMON = "vllm.models.deepseek_v41.common.engram"


def engine_config(model: dict[str, Any]) -> Any:
    """What place, refusals and stock's Engram read of a VllmConfig."""
    from vllm.config.engram import EngramConfig

    return SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_size=1, pipeline_parallel_size=1),
        engram_config=EngramConfig(cpu_offload=False),
        model_config=SimpleNamespace(hf_text_config=SimpleNamespace(**model)),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=32),
    )


def main() -> None:
    """The command line of the module's docstring."""
    if sys.argv[2] == "imported":
        importlib.import_module(COMMON)
    from engram_remote.vllm_seam.plugin import register

    register()
    found: dict[str, Any] = {
        "ours": sorted(name for name in sys.modules if name.startswith("engram_remote."))
    }
    module = importlib.import_module(COMMON)
    kind = module.ParallelEngramEmbedding
    found["module"], found["name"] = kind.__module__, kind.__name__
    found["stock's function"] = module.Engram._create_embedding.__module__
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    found["guarded"] = hasattr(WorkerWrapperBase, "_engram_remote_settings")
    if os.environ.get("VLLM_ENGRAM_REMOTE"):
        register()  # vLLM may load plugins more than once
        found["bound once"] = module._engram_remote_stock.__name__
        found |= constructed(module)
    print(json.dumps(found))


def constructed(module: Any) -> dict[str, Any]:
    """An embedding as stock's Engram constructs it, and whether its rows are those of the source."""
    import torch
    import vllm.config
    import vllm.distributed
    from engram_seam_tables import model_config, sources

    config = model_config()
    engine = engine_config(config)
    vllm.config.get_current_vllm_config = module.get_current_vllm_config = lambda: engine
    for where in (vllm.distributed, module):
        where.get_tensor_model_parallel_rank = lambda: 0
        where.get_tensor_model_parallel_world_size = lambda: 1
    properties = SimpleNamespace(multi_processor_count=4)
    torch.cuda.get_device_properties = lambda index: properties
    torch.accelerator.current_device_index = lambda: 0
    layout = module.EngramLayout(engine.model_config.hf_text_config)
    embedding = module.Engram._create_embedding(None, layout, 1)
    source = sources(config)[14]
    ids = torch.arange(0, 8, dtype=torch.int32)[None, :] + layout.offsets[1].int()[None, :]
    out = torch.empty(1, 8, embedding.dim + embedding.dim // 32, dtype=torch.uint8)
    embedding.lookup(ids, out)
    rows = ids[0].numpy()
    values = torch.from_numpy(source.values[rows])
    scales = torch.from_numpy(source.scales[rows])
    embedding.remote_tables.close()
    return {
        "layer": embedding.remote_layer,
        "allocated": embedding.weight.numel(),
        "rows": bool(torch.equal(out[0], torch.cat((values, scales), dim=1))),
    }


if __name__ == "__main__":
    main()
