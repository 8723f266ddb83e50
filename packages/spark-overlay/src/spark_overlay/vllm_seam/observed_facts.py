"""What a vLLM engine is, read from the model runner that is about to serve: the `Facts` of its observations.

Counted on the objects themselves, not taken from settings: the speculator's class, the parameters that it holds besides
the target's, the attention layers of its own that have a KV cache.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ofl.contract.observation_v1 import SCHEMA, Facts

from spark_overlay.vllm_seam.facts import engine_facts

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_RELEASE = re.compile(r"\b(\d+\.\d+(?:\.\d+)?)\b")


@dataclass(frozen=True)
class Named:
    """What is not the model runner's to say; see `Facts`."""

    start_id: str
    arm: str
    rank: int
    ranks: int
    engine_version: str
    overlay_version: str
    policy: str
    transport: str


def read_facts(runner: Any, named: Named) -> Facts:
    """The facts of one rank."""
    config, speculator = runner.vllm_config, runner.speculator
    device, capability, driver = device_facts(torch.device(runner.device))
    speculative = config.speculative_config
    made = None if speculator is None else type(speculator)
    return Facts(
        schema=SCHEMA,
        start_id=named.start_id,
        arm=named.arm,
        rank=named.rank,
        ranks=named.ranks,
        engine="vllm",
        engine_version=named.engine_version,
        overlay_version=named.overlay_version,
        device=device,
        device_capability=capability,
        driver=driver,
        speculator="" if made is None else made.__qualname__,
        speculator_module="" if made is None else made.__module__,
        policy=named.policy,
        transport=named.transport,
        draft_parameters=draft_parameters(runner),
        draft_layers=draft_layers(runner),
        budget_tokens=budget_tokens(config.scheduler_config),
        block_length=0 if speculative is None else int(speculative.num_speculative_tokens),
        window=engine_facts(config).window if getattr(speculative, "method", "") == "dspark" else 0,
        capabilities=tuple(sorted(capabilities(config, device, named.ranks))),
    )


def budget_tokens(scheduler: Any) -> int:
    """What the scheduler may schedule in a step: less than a batch holds where it says so itself."""
    scheduled = getattr(scheduler, "max_num_scheduled_tokens", None)
    return int(scheduler.max_num_batched_tokens if scheduled is None else scheduled)


def draft_parameters(runner: Any) -> int:
    """Parameters of the speculator's model that are not the target's too."""
    model = getattr(runner.speculator, "model", None)
    if model is None:
        return 0
    shared = {parameter.data_ptr() for parameter in runner.model.parameters()}
    own = {parameter.data_ptr(): parameter.numel() for parameter in model.parameters()}
    return sum(count for place, count in own.items() if place not in shared)


def draft_layers(runner: Any) -> int:
    """Attention layers with a KV cache that are no part of the target."""
    layers = runner.vllm_config.compilation_config.static_forward_context
    target = {id(module) for module in runner.model.modules()}
    cached = {name for group in runner.kv_cache_config.kv_cache_groups for name in group.layer_names}
    return sum(id(layers[name]) not in target for name in cached)


def capabilities(config: Any, device: str, ranks: int) -> set[str]:
    """Of `observation_v1.CAPABILITIES`, what this engine can show."""
    mode = config.compilation_config.cudagraph_mode
    graphs = device != "cpu" and not config.model_config.enforce_eager
    found = {
        "two_ranks": ranks == 2,
        "cuda_graphs": graphs and mode is not None and mode.name != "NONE",
        "multimodal": bool(config.model_config.is_multimodal_model),
    }
    return {name for name, shown in found.items() if shown}


def device_facts(device: torch.device) -> tuple[str, str, str]:
    """Name, capability and driver; "cpu" and nothing else without CUDA."""
    if device.type != "cuda":
        return device.type, "", ""
    major, minor = torch.cuda.get_device_capability(device)
    return torch.cuda.get_device_name(device), f"{major}.{minor}", driver_version()


def driver_version(path: Path = NVIDIA_DRIVER) -> str:
    """The kernel module's, as the driver itself says; "unknown" where it does not."""
    try:
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return "unknown"
    found = _RELEASE.search(first.partition("Kernel Module")[2])
    return found[1] if found is not None else "unknown"
