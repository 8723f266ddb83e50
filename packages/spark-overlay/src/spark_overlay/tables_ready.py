"""The tables' readiness records: each rank's own word that its model reads Engram rows remotely.

engram-remote writes FILE.RANK before its engine serves, and refuses an engine whose model holds another table.  What it
cannot tell is that vLLM left it out; so the launcher waits for records of its own start.  Standard library only.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ofl.files import read_plain

from spark_overlay.readiness import RECORD_BYTES_MAX

SWITCH = "VLLM_ENGRAM_REMOTE"
READY_FILE = f"{SWITCH}_READY_FILE"
START_ID = f"{SWITCH}_START_ID"
PLUGIN_NAME = "engram_remote"


@dataclass(frozen=True)
class TablesRecord:
    """One rank's.  reached: whether its server was connected at that moment; without, rows come from its shards."""

    rank: int
    pid: int
    reached: bool


def asked(environ: Mapping[str, str]) -> bool:
    """Whether the engine is to read tables remotely."""
    return bool(environ.get(SWITCH))


def read_tables(path: Path, start_id: str, holds: Callable[[int], bool]) -> list[TablesRecord]:
    """The records of this start beside path, by rank.  holds: whether a process may be taken at its word.

    What else lies there, of another start or half broken, is no record.
    """
    beside = sorted(one for one in path.parent.iterdir() if one.name.startswith(f"{path.name}."))
    found = [_record(one, start_id) for one in beside]
    return sorted(
        (one for one in found if one is not None and holds(one.pid)), key=lambda record: record.rank
    )


def said(records: list[TablesRecord]) -> str:
    """For the launcher's line."""
    ranks = f"rank{'s' if len(records) > 1 else ''} {', '.join(str(one.rank) for one in records)}"
    away = [str(one.rank) for one in records if not one.reached]
    if not away:
        return f"{ranks} read Engram tables remotely"
    return f"{ranks} read Engram tables remotely; of {', '.join(away)} the server is not there yet"


def _record(path: Path, start_id: str) -> TablesRecord | None:
    try:
        values = json.loads(read_plain(path, RECORD_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or values.get("start_id") != start_id:
        return None
    rank, pid = values.get("rank"), values.get("pid")
    if type(rank) is not int or type(pid) is not int or pid < 1:
        return None
    return TablesRecord(rank, pid, values.get("connected") is True)
