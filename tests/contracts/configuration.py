"""What the seam reads of vLLM's objects must be there: a check for `checks.CHECKS`, and where the seam reads.

Reads by `getattr` with a default are judged too: a refusal whose attribute has gone would never refuse again.
"""

import ast
from collections.abc import Iterator, Mapping

from reads import Read, typed_reads
from release import Release
from sources import Function

SEAM = "spark_overlay.vllm_seam"
CONFIG = {"vllm_config": "VllmConfig"}
KNOWN: dict[str, Mapping[str, str]] = {
    "refusals": {"config": "VllmConfig", "speculative": "SpeculativeConfig"},
    "facts": {"config": "VllmConfig", "model": "ModelConfig"},
    "assembly": CONFIG,
    "ranks": CONFIG,
    "speculators": CONFIG,
    "step": {"batch": "InputBatch", "request_states": "RequestState"},
    "additions": {"request_states": "RequestState"},
    "memory": {"model_runner": "GPUModelRunner"},
    "startup": {"model_runner": "GPUModelRunner"},
    "depth": {"config": "VllmConfig", "speculative": "SpeculativeConfig", "model_runner": "GPUModelRunner"},
    "observing": {"batch": "InputBatch", "runner": "GPUModelRunner", "request_states": "RequestState"},
    "observed_facts": {
        "config": "VllmConfig",
        "runner": "GPUModelRunner",
        "speculative": "SpeculativeConfig",
    },
}
"""By module of the seam, what some names in it always stand for."""
CHILDREN = {
    ("VllmConfig", "model_config"): "ModelConfig",
    ("VllmConfig", "speculative_config"): "SpeculativeConfig",
    ("VllmConfig", "scheduler_config"): "SchedulerConfig",
    ("VllmConfig", "parallel_config"): "ParallelConfig",
    ("VllmConfig", "cache_config"): "CacheConfig",
    ("VllmConfig", "compilation_config"): "CompilationConfig",
    ("SpeculativeConfig", "draft_model_config"): "ModelConfig",
    ("GPUModelRunner", "vllm_config"): "VllmConfig",
    ("GPUModelRunner", "speculative_config"): "SpeculativeConfig",
    ("GPUModelRunner", "scheduler_config"): "SchedulerConfig",
    ("GPUModelRunner", "req_states"): "RequestState",
}
NOT_YET_THERE = {
    "0.26.0": {
        ("VllmConfig", "num_lookahead_tokens"),
        ("VllmConfig", "watermark_config"),
        ("SpeculativeConfig", "disable_eagle_block_drop"),
        ("SpeculativeConfig", "enable_adaptive_verification"),
        ("GPUModelRunner", "adaptive_verification"),
    },
}
"""What a version has not, so that the seam reads it with a default.  Anything else that is gone is a defect."""


def configuration(release: Release) -> Iterator[str]:
    """Every attribute that the seam reads of vLLM's objects exists, or is known not to in this version."""
    absent = set()
    for module, known in KNOWN.items():
        found = seam_reads(release, module, known)
        if not found:
            yield f"nothing that {module} reads of vLLM was found"
        for read in found:
            if release.theirs(read.owner).has(read.name):
                continue
            absent.add((read.owner, read.name))
            if not read.tolerant:
                yield f"line {read.line} of {module} reads {read.owner}.{read.name}, which this version lacks"
    expected = NOT_YET_THERE.get(release.version, set())
    if absent != expected:
        yield f"read and not there: {sorted(absent)}; known not to be there: {sorted(expected)}"


def parallel_sizes(release: Release) -> Iterator[str]:
    """Each kind of parallelism that is refused has its name in this version's configuration."""
    sizes = ast.literal_eval(release.sources.module(f"{SEAM}.refusals").constant("PARALLEL_SIZES"))
    if len(sizes) < 4:
        yield f"only {sizes} are refused"
    for name in sizes:
        if not release.theirs("ParallelConfig").has(name):
            yield f"ParallelConfig has no {name}: that parallelism would not be refused"
    known = {name for name in release.theirs("ParallelConfig").attributes if name.endswith("_parallel_size")}
    if unknown := known - {*sizes, "tensor_parallel_size"}:
        yield f"parallelism that is neither served nor refused: {sorted(unknown)}"


def seam_reads(release: Release, module: str, known: Mapping[str, str]) -> list[Read]:
    """Reads of vLLM's objects in one module of the seam."""
    tree = release.sources.module(f"{SEAM}.{module}").tree
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return sorted(
        {read for function in functions for read in typed_reads(function, known, CHILDREN)},
        key=lambda read: (read.line, read.name),
    )
