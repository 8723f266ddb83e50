"""Which vLLM versions the seam knows, and the proof that the one at hand is one of them.

A version is known by its number and by the exact bytes of the file whose function is replaced.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from spark_overlay.delivery import branch
from spark_overlay.vllm_seam.errors import SeamError

SWITCH = branch.SWITCH
"""Stock vLLM never says this name; a file laid over its own, to bind a remote drafter without a plugin, does."""


@dataclass(frozen=True)
class Seam:
    """One supported version.

    module: our module that speaks to it.
    base_package: the package of vLLM whose `init_speculator` is replaced.
    base_sha256: digest of that package's `__init__.py`.
    adaptive: whether it has adaptive verification.
    """

    module: str
    base_package: str
    base_sha256: str
    adaptive: bool = True


SEAMS = {
    "0.26.0": Seam(
        module="spark_overlay.vllm_seam.v0_26",
        base_package="vllm.v1.worker.gpu.spec_decode",
        base_sha256="5d53a1730458019f3f08b628194bd78ba09ecd697b40ba80d7b6f8f5f83a1879",
        adaptive=False,
    ),
    "0.30.0": Seam(
        module="spark_overlay.vllm_seam.v0_30",
        base_package="vllm.v1.worker.gpu.spec_decode",
        base_sha256="1f1f84bfe6f4f5af3a7e21a7a8716ecf7b9013da1d03327668a3ee36afc24c32",
    ),
    "0.32.0": Seam(
        module="spark_overlay.vllm_seam.v0_32",
        base_package="vllm.v1.worker.gpu.spec_decode",
        base_sha256="9a94048ba5c0d0c29b7e84250fe418b650059c6ca6a410bfa3fc0efa09d932ac",
    ),
    "0.33.0": Seam(
        module="spark_overlay.vllm_seam.v0_33",
        base_package="vllm.v1.worker.gpu.spec_decode",
        base_sha256="dd3f0e6a7e02644b9d1e16109e38777cf365ea98369d42bd3fe6d40099effb40",
    ),
}


def public_version(version: str) -> str:
    """The version without its local part: builds of one release for other devices share the Python tree."""
    return version.partition("+")[0]


def seam_for(version: str) -> Seam:
    """The seam of this vLLM; raises SeamError naming the version and those that are supported."""
    seam = SEAMS.get(public_version(version))
    if seam is None:
        known = ", ".join(sorted(SEAMS))
        raise SeamError(f"vLLM {version} is not supported; supported: {known}")
    return seam


def check_base_file(seam: Seam, version: str, path: Path) -> None:
    """Raises SeamError naming the file and both digests where it is not the release's own.

    The release's own with exactly our branch laid over it is as good: that runs what the plugin runs.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SeamError(f"{path} of vLLM {version} cannot be read: {error.strerror}") from error
    stock = branch.stock_of(data)
    if stock is None and SWITCH in data:
        raise SeamError(
            f"{path} has been replaced by a file that reads VLLM_DSPARK_REMOTE itself, and spark-overlay is "
            "installed as well: take away one of the two, or build the file again (spark-overlay overlay build)"
        )
    digest = hashlib.sha256(data if stock is None else stock).hexdigest()
    if digest != seam.base_sha256:
        raise SeamError(
            f"{path} is not the file of vLLM {version}: its sha256 is {digest}, not {seam.base_sha256}"
        )
