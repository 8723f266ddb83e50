"""What a test does inside an engine's worker processes, one function a purpose, called on every rank.

Each takes vLLM's worker wrapper first, as `collective_rpc` passes it.  Planted defects exist here alone: the overlay
has no switch for them.
"""

import os
from typing import Any

UNTOUCHED: dict[str, Any] = {}
"""What `plant` replaced in this process."""
VERIFIED: list[int] = []
"""Of `watch_verified`, by step."""
ENDED: list[bool] = []
"""Of each proposal since `hold_the_stream`: whether the kernel before it had ended when it came back."""


class PlantedError(Exception):
    """The defect that a test put into rank 0."""


def speculator_of(wrapper: Any) -> Any:
    """The rank's speculator, None where it has none."""
    return getattr(wrapper.worker.model_runner, "speculator", None)


def describe(wrapper: Any) -> dict[str, Any]:
    """Who this rank is."""
    return {"pid": os.getpid(), "rank": wrapper.rpc_rank, "speculator": type(speculator_of(wrapper)).__name__}


def figures(wrapper: Any) -> dict[str, Any] | None:
    """The drafter's figures on the rank that has one."""
    drafter = getattr(speculator_of(wrapper), "drafter", None)
    return None if drafter is None else drafter.stats()


def hooks(wrapper: Any) -> dict[str, Any]:
    """What stands on this rank's objects that observation may put there, and whether its package is loaded."""
    import sys

    speculator = speculator_of(wrapper)
    drafter = getattr(speculator, "drafter", None)
    session = None if drafter is None else drafter.link.session
    return {
        "instances": sorted(
            name
            for owner in (speculator, drafter, wrapper.worker.model_runner.req_states)
            if owner is not None
            for name in vars(owner)
            if callable(getattr(type(owner), name, None))
        ),
        "transport": "" if session is None else type(session.transport).__module__,
        "methods_of": sorted({type(wrapper).shutdown.__module__}),
        "modules": sorted(name for name in sys.modules if name.startswith("spark_overlay.observe")),
    }


def wait_connected(wrapper: Any, within_s: float) -> bool | None:
    """Whether the drafter has a session, waiting at most so long for one; None on a rank without a drafter."""
    drafter = getattr(speculator_of(wrapper), "drafter", None)
    return None if drafter is None else drafter.link.wait_ready(within_s)


def adapted(wrapper: Any) -> dict[str, Any]:
    """Of an engine of `adaptive_process`: its cost tables, and the drafts scheduled and chosen in each step."""
    manager = wrapper.worker.model_runner.adaptive_verification
    draft, verify = manager.cost_tables
    return {"draft_ms": draft.tolist(), "verify_ms": verify.tolist(), "seen": manager.seen}


def memory(wrapper: Any) -> dict[str, int]:
    """What the rank holds: parameters of target and drafter, KV layers, blocks and bytes."""
    runner = wrapper.worker.model_runner
    drafter = getattr(speculator_of(wrapper), "model", None)
    config = runner.kv_cache_config
    return {
        "target_parameter_bytes": _parameter_bytes(runner.model),
        "drafter_parameter_bytes": 0 if drafter is None else _parameter_bytes(drafter, besides=runner.model),
        "kv_layers": sum(len(group.layer_names) for group in config.kv_cache_groups),
        "kv_groups": len(config.kv_cache_groups),
        "kv_blocks": config.num_blocks,
        "kv_bytes": sum(_storages(runner.kv_caches).values()),
    }


def plant(wrapper: Any, where: str) -> str:
    """On rank 0: `where` ("module:Class.method") raises PlantedError from now on.  Returns what happened."""
    if wrapper.rpc_rank != 0:
        return "left alone"
    owner, name = _found(where)
    UNTOUCHED[where] = getattr(owner, name)

    def planted(*_: Any, **__: Any) -> Any:
        raise PlantedError(f"planted in {where}")

    setattr(owner, name, planted)
    return "planted"


def mend(wrapper: Any, where: str) -> None:
    """Undo `plant`."""
    if wrapper.rpc_rank == 0:
        owner, name = _found(where)
        setattr(owner, name, UNTOUCHED.pop(where))


def hold_the_stream(wrapper: Any, cycles: int) -> None:
    """From now on a GPU kernel of so many cycles comes before each proposal: who comes back before its end waited for
    nothing on the device.
    """
    import torch

    speculator = speculator_of(wrapper)
    propose = speculator.propose

    def held(*args: Any, **kwargs: Any) -> Any:
        kernel = torch.cuda.Event()
        torch.cuda._sleep(cycles)
        kernel.record()
        drafts = propose(*args, **kwargs)
        ENDED.append(kernel.query())
        return drafts

    speculator.propose = held


def let_the_stream_go(wrapper: Any) -> list[bool]:
    """Undo `hold_the_stream`; what was seen, by proposal."""
    del speculator_of(wrapper).propose
    seen, ENDED[:] = ENDED.copy(), []
    return seen


def watch_verified(wrapper: Any) -> None:
    """From now on note how many drafts of a request each step verifies."""
    speculator = speculator_of(wrapper)
    propose = speculator.propose

    def watched(*args: Any, **kwargs: Any) -> Any:
        batch = kwargs["input_batch"] if "input_batch" in kwargs else args[0]
        counts = batch.num_draft_tokens_per_req
        VERIFIED.append(0 if counts is None else int(counts[: batch.num_reqs].max()))
        return propose(*args, **kwargs)

    speculator.propose = watched


def most_verified(wrapper: Any) -> int:
    """The most drafts of a request that a step verified since the last call."""
    seen, VERIFIED[:] = VERIFIED.copy(), []
    return max(seen)


def _found(where: str) -> tuple[Any, str]:
    import importlib

    module, _, path = where.partition(":")
    name, _, method = path.partition(".")
    return getattr(importlib.import_module(module), name), method


def _parameter_bytes(model: Any, besides: Any = None) -> int:
    """Of parameters and buffers, each storage once, without those that `besides` holds too."""
    shared = _storages(_tensors(besides)) if besides is not None else {}
    return sum(size for place, size in _storages(_tensors(model)).items() if place not in shared)


def _tensors(model: Any) -> list[Any]:
    return [*model.parameters(), *model.buffers()]


def _storages(tensors: list[Any]) -> dict[int, int]:
    """Bytes of each storage that the tensors lie in, by address."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}
