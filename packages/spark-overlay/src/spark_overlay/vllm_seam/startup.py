"""What happens once an engine is about to serve: connect, say what capacity frees and keeps, write the
readiness record.
"""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from ofl.contract.dspark_v1 import SERVICE, VERSION

import spark_overlay
from spark_overlay.interface import Drafter, EngineFacts
from spark_overlay.readiness import ReadinessRecord, write_record
from spark_overlay.settings import Settings

CONNECT_WAIT_S = 2.0
"""A worker that is up answers well within; without one the engine serves all the same, just without drafts.
"""

log = logging.getLogger(__name__)


def on_up(settings: Settings, facts: EngineFacts, drafter: Drafter, version: str) -> Callable[[Any], None]:
    """What to call with the model runner when the engine is up."""

    def up(model_runner: Any) -> None:
        drafter.start(CONNECT_WAIT_S)
        for line in report(settings, facts, model_runner, drafter.stats()):
            log.info(line)
        if settings.ready_file is not None:
            write_record(settings.ready_file, record(settings, version))

    return up


def record(settings: Settings, version: str) -> ReadinessRecord:
    """This process's readiness record.  version: vLLM's."""
    return ReadinessRecord(
        pid=os.getpid(),
        start_id=settings.start_id,
        policy=settings.policy,
        endpoint=settings.endpoint,
        identity=settings.identity,
        versions={
            "spark-overlay": spark_overlay.__version__,
            "contract": f"{SERVICE}-v{VERSION}",
            "vllm": version,
        }
        | _transport_version(),
    )


def report(
    settings: Settings, facts: EngineFacts, model_runner: Any, stats: Mapping[str, object]
) -> list[str]:
    """Lines for the log: what capacity frees on this host and what vLLM keeps.  Only what was looked at."""
    taps = model_runner.speculator.taps
    state = "is connected" if stats["connected"] else "is not there yet; until then, no drafts"
    if stats["disabled"]:
        state = f"is not used in this run, no drafts: {stats['disabled']}"
    layers = sum(len(group.layer_names) for group in model_runner.kv_cache_config.kv_cache_groups)
    scheduler = model_runner.scheduler_config
    lines = [
        f"drafting remotely through {settings.endpoint}, policy {settings.policy}; the worker {state}",
        f"freed here: the drafter's weights, graphs and KV cache; {layers} KV layers, all the target's",
        f"held for it: {taps.buffer_bytes >> 10} KiB to gather at most {taps.max_rows} rows of "
        f"{facts.row_bytes} bytes",
        f"kept by vLLM: {model_runner.vllm_config.num_lookahead_tokens} lookahead slots a request; "
        f"{scheduler.max_num_scheduled_tokens} scheduled tokens a step, of which each request reserves "
        f"{model_runner.speculative_config.max_num_new_slots_for_drafting} for drafting",
    ]
    if model_runner.vllm_config.cache_config.enable_prefix_caching:
        drop = "off" if model_runner.speculative_config.disable_eagle_block_drop else "on"
        lines.append(f"kept by vLLM: prefix-cache hits drop a trailing block for drafters' sake ({drop})")
    hidden = _hidden_buffer(model_runner.model)
    if hidden:
        lines.append(
            f"kept by vLLM: the target's _mtp_hidden_buffer, {hidden >> 20} MiB, which nothing reads"
        )
    return lines


def _hidden_buffer(model: Any) -> int:
    """Bytes of the buffer that DeepSeek targets keep for MTP drafters; 0 where the target has none."""
    found = getattr(getattr(model, "model", None), "_mtp_hidden_buffer", None)
    return 0 if found is None else int(found.numel() * found.element_size())


def _transport_version() -> dict[str, str]:
    import ofl
    from ofl.native import ABI_VERSION

    return {"ofl-transport": str(ofl.__version__), "ofl-abi": str(ABI_VERSION)}
