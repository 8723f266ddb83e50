"""Which vLLM versions the seam knows, and the proof that the one at hand is one of them.

A version is known by its number and by the exact bytes of the files that the replacement inherits from and relies on:
docs/engram/vllm.md says what was studied in them.
"""

import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engram_remote.vllm_seam.errors import SeamError

SWITCH = b"VLLM_ENGRAM_REMOTE"
"""Stock vLLM never says this name; a file laid over its own, to read remote tables without a plugin, does."""

COMMON = "vllm.models.deepseek_v41.common.engram"
NVIDIA = "vllm.models.deepseek_v41.nvidia.engram"
CONFIG = "vllm.config.engram"


@dataclass(frozen=True)
class Seam:
    """One supported version.

    module: stock's module whose `ParallelEngramEmbedding` the NVIDIA model's `Engram` constructs.
    files: sha256 of the modules whose source the replacement was written against, by module.
    """

    module: str
    files: Mapping[str, str]


SEAMS = {
    "0.30.0": Seam(
        NVIDIA,
        {
            COMMON: "be4efe504e362d3cc5aa0241234b547f865c148aff3b2a99e263b8c1c6e58fdd",
            NVIDIA: "9c644c1fed14c73b25455baa75d13b091a2431ba057865b180f0d3e03062efb0",
            CONFIG: "34043a22385a041d4e9be8857f64174c990c2ca8308b97b6a952b5ab96c20ee5",
        },
    ),
    "0.31.0": Seam(
        NVIDIA,
        {
            COMMON: "0bdd36b2ab4d28a8c30e9e77f1d8e25dffd05e4aff382cb21ba39aca3e84ab91",
            NVIDIA: "d7765d509bcfc014efdbcc502b55a95aeec22e3eacd9f3677fab49ae90a9787a",
            CONFIG: "00435380fbcbb508c20f47c6bfba3cf81cf729abc1b08c80fcfab5dda66f3085",
        },
    ),
    "0.32.0": Seam(
        COMMON,
        {
            COMMON: "80d6f14973c99be431029e0fba4a6a784a428501bd6ba1726cff0879e0e1627f",
            CONFIG: "53bf5367af69149f7dc6dfe576921f22948cdb5cbd3e903c8bd7b310f80aa202",
        },
    ),
    "0.33.0": Seam(
        COMMON,
        {
            COMMON: "720923ccd796dfdeab4b396eeeea79cd4c11a9dcd2e6ef8d57c0390fa4cf7ab2",
            CONFIG: "c9247c5bd690de50bb2001d4b35117a740910d88334791793ddc05cc8cca2ba0",
        },
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


def check_sources(seam: Seam, version: str) -> None:
    """Raises SeamError naming the file and both digests where one is not the release's own.  Imports only packages."""
    for module, digest in seam.files.items():
        check_file(source_of(module), digest, version)


def check_file(path: Path, digest: str, version: str) -> None:
    """As `check_sources`, of one file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SeamError(f"{path} of vLLM {version} cannot be read: {error.strerror}") from error
    if SWITCH in data:
        raise SeamError(
            f"{path} has been replaced by a file that reads VLLM_ENGRAM_REMOTE itself, and engram-remote is "
            "installed as well: take away one of the two"
        )
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise SeamError(f"{path} is not the file of vLLM {version}: its sha256 is {found}, not {digest}")


def source_of(module: str) -> Path:
    """The file of a module that is not imported by this.  Raises SeamError where this vLLM has none."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        # Of a missing module there is no spec, but a missing parent raises; so does what a parent imports in vain,
        # which is another failure and keeps its own words.
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        found = None
    if found is None or found.origin is None:
        raise SeamError(f"this vLLM has no module {module}")
    return Path(found.origin)
