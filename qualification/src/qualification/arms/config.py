"""What an arm process is told at its start, as JSON in its one argument.  Standard library and `ofl` only."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ofl.contract import observation_v1 as seen

OBSERVE = "VLLM_DSPARK_OBSERVE"
TABLES = "QUALIFY_TABLES"
"""An arm's setting: where its engine reads rows of Engram tables, "local" or "remote"; unset: it has no tables."""


@dataclass(frozen=True)
class ArmConfig:
    """One start of one arm.  speculation, ranks: see `checks.model.Arm`.

    target, drafter: folders; drafter holds no weights where this host drafts nothing.  drafts: K.  prompt_text: see
    `runs.platform`.  scratch: a folder that the arm may make, and takes away again.  arguments: of the engine.
    """

    arm: str
    speculation: str
    ranks: int
    target: str = ""
    drafter: str = ""
    drafts: int = 0
    prompt_text: str = ""
    scratch: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """As the argument."""
        return json.dumps(asdict(self))


def read_config(text: str) -> ArmConfig:
    """The configuration of an argument."""
    return ArmConfig(**json.loads(text))


@dataclass(frozen=True)
class HookPlaces:
    """Where the hooks of this process write and read.  fault_plan: None where there is no fault seam."""

    folder: Path
    key: bytes
    fault_plan: Path | None


def hook_places(environ: Mapping[str, str] = os.environ) -> HookPlaces:
    """From the environment that the runner made."""
    plan = environ.get(f"{OBSERVE}_FAULT_PLAN")
    key = seen.parse_key(environ[f"{OBSERVE}_KEY"])
    return HookPlaces(Path(environ[OBSERVE]), key, Path(plan) if plan else None)


def first_facts(folder: Path) -> seen.Facts:
    """What rank 0 says in its file, the only one of a rank 0 there.  Raises ObservationError and OSError."""
    paths = sorted(folder.glob("observations-*-rank0.jsonl"))
    if len(paths) != 1:
        raise seen.ObservationError("line", f"{len(paths)} files of a rank 0 where there must be one")
    with paths[0].open("rb") as file:
        record = seen.read_line(file.readline()).record
    if not isinstance(record, seen.Facts):
        raise seen.ObservationError("kind", f"{record.kind!r} where facts come first")
    return record
