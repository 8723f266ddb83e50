"""One vLLM release and our seam for it, side by side: where the things stand that the checks compare."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sources import Class, Function, Module, Sources
from spark_overlay.vllm_seam.versions import SEAMS, Seam

ROOT = Path(__file__).parents[2]
OURS = ROOT / "packages" / "spark-overlay" / "src"

RUNNER = "vllm.v1.worker.gpu.model_runner"
SPEC_DECODE = "vllm.v1.worker.gpu.spec_decode"
CLASSES = {
    "VllmConfig": "vllm.config.vllm",
    "ModelConfig": "vllm.config.model",
    "SpeculativeConfig": "vllm.config.speculative",
    "SchedulerConfig": "vllm.config.scheduler",
    "ParallelConfig": "vllm.config.parallel",
    "CacheConfig": "vllm.config.cache",
    "CompilationConfig": "vllm.config.compilation",
    "GPUModelRunner": RUNNER,
    "RequestState": "vllm.v1.worker.gpu.states",
    "InputBatch": "vllm.v1.worker.gpu.input_batch",
    "AdaptiveVerificationManager": f"{SPEC_DECODE}.adaptive_verification",
    "WorkerWrapperBase": "vllm.v1.worker.worker_base",
    "WorkerBase": "vllm.v1.worker.worker_base",
    "BaseSpeculator": f"{SPEC_DECODE}.speculator",
    "DraftModelSpeculator": f"{SPEC_DECODE}.speculator",
    "DFlashSpeculator": f"{SPEC_DECODE}.dflash.speculator",
    "DSparkSpeculator": f"{SPEC_DECODE}.dspark.speculator",
}
"""vLLM's classes that the seam touches, and the modules that define them."""


@dataclass(frozen=True)
class Release:
    """version: as in `SEAMS`.  folder: holds the folder `vllm` of that release.

    changed: files that stand before the release's and ours, in the same tree of folders.
    """

    version: str
    folder: Path
    changed: tuple[Path, ...] = ()

    @property
    def seam(self) -> Seam:
        """What the overlay says about this version."""
        return SEAMS[self.version]

    @cached_property
    def sources(self) -> Sources:
        """The release's modules and ours."""
        return Sources(*self.changed, self.folder, OURS)

    def theirs(self, name: str) -> Class:
        """One of `CLASSES`; raises LookupError where the release has it no more."""
        return self.sources.class_of(CLASSES[name], name)

    @cached_property
    def module(self) -> Module:
        """Our module for this version."""
        return self.sources.module(self.seam.module)

    @property
    def remote_only(self) -> Class:
        """Our speculator of capacity policy."""
        return self.sources.class_of(self.seam.module, "RemoteDSparkSpeculator")

    @property
    def remote_and_local(self) -> Class:
        """Our speculator of the other policies."""
        return self.sources.class_of(self.seam.module, "RemoteAndLocalDSparkSpeculator")

    @property
    def runner_methods(self) -> list[Function]:
        """Of the model runner itself, not of its bases: those know no speculator."""
        return [node for node in self.theirs("GPUModelRunner").node.body if isinstance(node, Function)]

    def base_file_sha256(self) -> str:
        """Digest of the file whose function is replaced."""
        return hashlib.sha256(self.sources.module(self.seam.base_package).path.read_bytes()).hexdigest()
