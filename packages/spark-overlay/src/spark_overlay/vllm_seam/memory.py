"""What drafting remotely frees and holds on one rank, measured on the engine at hand.

Pure reading: of the loaded modules, the KV cache and our own buffers.  Nothing here is estimated.  Parameter bytes are
those that the modules hold: vLLM's CPU builds repack weights out of their sight, so there they say too little.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_overlay.vllm_seam.policies import RemoteRounds

Memory = dict[str, int]


def measure(model_runner: Any, rounds: "RemoteRounds", rank0_buffers: Mapping[str, int]) -> Memory:
    """Bytes and counts by name.  rank0_buffers: of the drafter's stats; empty on other ranks."""
    target = model_runner.model
    shared = _weights(target)
    drafter = _weights(getattr(model_runner.speculator, "model", None))
    return {
        "target_parameter_bytes": sum(shared.values()),
        "drafter_parameter_bytes": sum(size for place, size in drafter.items() if place not in shared),
        **_kv_cache(model_runner),
        **_rank0(rounds, rank0_buffers),
        "words_host_bytes": rounds.words.host_bytes,
        "words_device_bytes": rounds.words.device_bytes,
        "mtp_hidden_buffer_bytes": _bytes(
            getattr(getattr(target, "model", None), "_mtp_hidden_buffer", None)
        ),
        **_schedule(model_runner),
    }


def lines(memory: Memory, policy: str) -> list[str]:
    """The record as lines for the log."""
    draft_layers, drafter_bytes = memory["kv_draft_layers"], memory["drafter_parameter_bytes"]
    held = memory.get("ring_bytes", 0) + memory.get("gather_host_bytes", 0) + memory["words_host_bytes"]
    on_device = memory.get("gather_device_bytes", 0) + memory["words_device_bytes"]
    if policy == "capacity":
        whose = "all the target's" if not draft_layers else f"and {draft_layers} of a drafter"
        local = (
            "not here: the drafter's weights, graphs and KV cache; "
            f"{memory['kv_target_layers']} KV layers, {whose}; left here: {drafter_bytes} bytes of drafter parameters"
        )
    else:
        local = (
            f"kept for policy {policy}: the local drafter's {size_text(drafter_bytes)} of parameters and "
            f"{draft_layers} KV layers, {memory['kv_draft_page_bytes']} bytes for {memory['kv_block_tokens']} tokens"
        )
    found = [
        f"the target holds {size_text(memory['target_parameter_bytes'])} of parameters and "
        f"{memory['kv_target_layers']} KV layers, {memory['kv_target_page_bytes']} bytes for "
        f"{memory['kv_block_tokens']} tokens; {memory['kv_blocks']} blocks of {memory['kv_block_bytes']} bytes in "
        f"{memory['kv_groups']} {'group' if memory['kv_groups'] == 1 else 'groups'}",
        local,
        f"held for remote drafting: {size_text(held)} on the host, {size_text(on_device)} on the device",
        f"kept by vLLM: {memory['lookahead_slots']} lookahead slots a request; "
        f"{memory['scheduled_tokens_max']} scheduled tokens a step, of which each request reserves "
        f"{memory['reserved_tokens']} for drafting",
    ]
    if memory["prefix_caching"]:
        drop = "on" if memory["eagle_block_drop"] else "off"
        found.append(f"kept by vLLM: prefix-cache hits drop a trailing block for drafters' sake ({drop})")
    if memory["mtp_hidden_buffer_bytes"]:
        found.append(
            f"kept by vLLM: the target's _mtp_hidden_buffer, {size_text(memory['mtp_hidden_buffer_bytes'])}, "
            "which nothing reads"
        )
    return found


def size_text(size: int) -> str:
    """Bytes as people read them: four digits in the largest unit that leaves some, never rounded to nothing."""
    value, units = float(size), iter(("bytes", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while value >= 1024 and unit != "TiB":
        value, unit = value / 1024, next(units)
    return f"{value:.4g} {unit}"


def _rank0(rounds: "RemoteRounds", rank0_buffers: Mapping[str, int]) -> Memory:
    if rounds.lead is None:
        return {}
    taps = rounds.lead.taps
    return {
        "ring_bytes": int(rank0_buffers.get("ring_bytes", 0)),
        "gather_host_bytes": taps.host_bytes,
        "gather_device_bytes": taps.device_bytes,
        "gather_rows_max": taps.max_rows,
        "row_bytes": taps.row_bytes,
    }


def _kv_cache(model_runner: Any) -> Memory:
    """Of the caches as they were allocated: layers of several groups may lie in the same bytes, a block of one
    group at a time.
    """
    config = model_runner.kv_cache_config
    draft_names = frozenset(getattr(model_runner.speculator, "draft_attn_layer_names", ()))
    pages = {
        name: _page_bytes(group.kv_cache_spec, name)
        for group in config.kv_cache_groups
        for name in group.layer_names
    }
    allocated = sum(_storages(model_runner.kv_caches).values())
    return {
        "kv_target_layers": len(pages.keys() - draft_names),
        "kv_draft_layers": len(pages.keys() & draft_names),
        "kv_target_page_bytes": sum(pages[name] for name in pages.keys() - draft_names),
        "kv_draft_page_bytes": sum(pages[name] for name in pages.keys() & draft_names),
        "kv_bytes": allocated,
        "kv_block_bytes": allocated // config.num_blocks,
        "kv_blocks": config.num_blocks,
        "kv_block_tokens": min(group.kv_cache_spec.block_size for group in config.kv_cache_groups),
        "kv_groups": len(config.kv_cache_groups),
    }


def _page_bytes(spec: Any, layer: str) -> int:
    """One layer's bytes of a block; a group may hold layers of several kinds."""
    kinds = getattr(spec, "kv_cache_specs", None)
    return int((kinds[layer] if kinds else spec).page_size_bytes)


def _schedule(model_runner: Any) -> Memory:
    config, speculative = model_runner.vllm_config, model_runner.speculative_config
    scheduler = model_runner.scheduler_config
    return {
        "lookahead_slots": getattr(config, "num_lookahead_tokens", speculative.num_speculative_tokens),
        "scheduled_tokens_max": scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens,
        "reserved_tokens": speculative.max_num_new_slots_for_drafting,
        "prefix_caching": int(bool(config.cache_config.enable_prefix_caching)),
        "eagle_block_drop": int(_drops_block(speculative)),
    }


def _drops_block(speculative: Any) -> bool:
    """Whether prefix-cache hits lose their last block: vLLM 0.33 drops none for this method, and 0.26 cannot say."""
    said = getattr(speculative, "use_eagle_block_drop", None)
    return not getattr(speculative, "disable_eagle_block_drop", False) if said is None else bool(said())


def _weights(module: Any) -> dict[int, int]:
    """Storages of a module's parameters and buffers; none of no module."""
    return {} if module is None else _storages([*module.parameters(), *module.buffers()])


def _storages(tensors: Iterable[Any]) -> dict[int, int]:
    """Bytes of each storage that the tensors lie in, once each, by its address."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _bytes(tensor: Any) -> int:
    """Bytes of a tensor; 0 of none."""
    return 0 if tensor is None else int(tensor.numel() * tensor.element_size())
