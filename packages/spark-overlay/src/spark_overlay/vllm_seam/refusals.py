"""What an engine's configuration must say to draft remotely, and a sentence for what bars it.

Reads attributes of vLLM's configuration, and which files a local drafter's folder has; imports nothing of vLLM.
Refused is what this release cannot serve exactly (parallelism other than tensor, other speculators' features),
never what merely makes drafting worse.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_overlay.vllm_seam.errors import SeamError

ARCHITECTURES = ("Qwen3DSparkModel",)
"""Drafter architectures whose shape we can state; the worker drafts for these."""
WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
"""Files in which vLLM's default loader finds a drafter's weights."""
READ_FROM_FILES = (
    "auto",
    "hf",
    "safetensors",
    "fastsafetensors",
    "instanttensor",
    "mistral",
    "npcache",
    "pt",
)
"""Load formats of that loader; the others make weights up or find them elsewhere."""

PARALLEL_SIZES = (
    "pipeline_parallel_size",
    "data_parallel_size",
    "prefill_context_parallel_size",
    "decode_context_parallel_size",
)


def refuse(config: Any, policy: str) -> None:
    """Raises SeamError with the first reason why this engine cannot draft remotely.  config: a VllmConfig."""
    for sentence in refusals(config, policy):
        raise SeamError(sentence)


def refusals(config: Any, policy: str) -> Iterator[str]:
    """Every reason, in the order in which an operator would mend them.

    An attribute that some supported version lacks counts as not set.
    """
    speculative = config.speculative_config
    if speculative is None:
        yield "speculative_config is missing: VLLM_DSPARK_REMOTE needs it with method 'dspark'"
        return
    if speculative.method != "dspark":
        yield f"speculative_config.method is {speculative.method!r}: VLLM_DSPARK_REMOTE needs 'dspark'"
        return
    if not config.use_v2_model_runner:
        yield "VLLM_USE_V2_MODEL_RUNNER must be 1, without what V2 lacks: the engine chose the V1 runner"
    for name in PARALLEL_SIZES:
        size = getattr(config.parallel_config, name, 1)
        if size != 1:
            yield f"{name} is {size}: of several ranks, drafting remotely serves tensor parallelism alone"
    yield from _drafting_refusals(config, speculative)
    if policy != "capacity" and getattr(speculative, "disable_eagle_block_drop", False):
        yield (
            f"disable_eagle_block_drop is on: policy {policy!r} keeps the local drafter's KV cache, which "
            "needs the drop (capacity does not)"
        )
    if policy != "capacity" and (folder := _folder_without_weights(config, speculative)) is not None:
        yield f"policy {policy!r} needs the drafter's weights, and {folder} holds none"


def _folder_without_weights(config: Any, speculative: Any) -> Path | None:
    """The local drafter's folder where vLLM would look for weights in vain; a name on a hub is left to vLLM."""
    load = getattr(speculative, "draft_load_config", None) or config.load_config
    folder = Path(speculative.draft_model_config.model)
    if str(load.load_format).lower() not in READ_FROM_FILES or not folder.is_dir():
        return None
    return None if any(True for pattern in WEIGHTS for _ in folder.glob(pattern)) else folder


def _drafting_refusals(config: Any, speculative: Any) -> Iterator[str]:
    drafter = speculative.draft_model_config.hf_config
    if speculative.draft_sample_method != "greedy":
        yield f"draft_sample_method is {speculative.draft_sample_method!r}: the remote drafter is greedy only"
    if speculative.rejection_sample_method == "synthetic":
        yield "rejection_sample_method is 'synthetic': it would accept a failed round's zeros"
    if getattr(drafter, "dspark_draft_topk", None) is not None:
        yield f"dspark_draft_topk is {drafter.dspark_draft_topk}: the remote drafter scores every token"
    if getattr(config, "watermark_config", None) is not None:
        yield "watermark_config is set: remote drafts cannot carry a watermark"
    architectures = list(speculative.draft_model_config.architectures)
    if not set(architectures) & set(ARCHITECTURES):
        yield f"the drafter's architectures are {architectures}: known so far is {', '.join(ARCHITECTURES)}"
