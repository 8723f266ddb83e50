"""The readiness record: the engine's own word that the remote drafter is in place.

Owns the file that an engine process writes when its speculator is the remote one and the model is loaded, and
that the launcher waits for.  A plugin that was left out, or an import that vLLM swallowed, leaves no other
trace.  Standard library only; must never write a record that a reader could see half of.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ofl.files import FileTooLongError, publish, read_plain

FORMAT = 1
READY_FILE = "VLLM_DSPARK_REMOTE_READY_FILE"
"""Setting: path of the record.  Unset: none is written."""
START_ID = "VLLM_DSPARK_REMOTE_START_ID"
"""Setting: names this start of the engine; the record repeats it, so that an older one is not taken for it.
"""
RECORD_BYTES_MAX = 1 << 16
TEXTS = ("start_id", "policy", "endpoint", "identity")


class ReadinessError(ValueError):
    """A file that is no readiness record; its text names the file and what is wrong with it."""


@dataclass(frozen=True)
class ReadinessRecord:
    """Who is ready.

    pid: of the process that holds the speculator.  start_id: of the launch, "" where none was set. endpoint:
    of the worker.  identity: 64 hex digits of the drafter.  versions: of package, contract, vllm and
    transport.  worker: what it is when the engine is about to serve: "connected", "not there yet: …" or "not used in
    this run: …"; "" in a record of an overlay that does not tell.
    """

    pid: int
    start_id: str
    policy: str
    endpoint: str
    identity: str
    versions: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT
    worker: str = ""


def write_record(path: Path, record: ReadinessRecord) -> None:
    """Write it beside its place and move it there.  Raises OSError naming the path."""
    replace_file(path, json.dumps(asdict(record), indent=1) + "\n")


def replace_file(path: Path, text: str) -> None:
    """The text in place of whatever is at path: readers see the old file or the new one whole.  Raises OSError."""
    publish(path, text.encode(), mode=0o600)


def read_record(path: Path) -> ReadinessRecord | None:
    """The record at path, None where there is no file.  Raises ReadinessError on anything else."""
    try:
        data = read_plain(path, RECORD_BYTES_MAX)
    except FileNotFoundError:
        return None
    except FileTooLongError as error:
        raise ReadinessError(
            f"{path} is longer than {RECORD_BYTES_MAX} bytes, which no readiness record is"
        ) from error
    except OSError as error:
        raise ReadinessError(f"{path} cannot be read: {error.strerror}") from error
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise ReadinessError(f"{path} is not JSON") from None
    return _checked(path, values)


def _checked(path: Path, values: object) -> ReadinessRecord:
    if not isinstance(values, dict):
        raise ReadinessError(f"{path} is not a JSON object")
    if values.get("format") != FORMAT:
        raise ReadinessError(f"{path}: format is {values.get('format')!r}, not {FORMAT}")
    if type(values.get("pid")) is not int or values["pid"] < 1:
        raise ReadinessError(f"{path}: pid is {values.get('pid')!r}, not a process id")
    texts = {name: _text(path, name, values.get(name)) for name in TEXTS}
    versions = values.get("versions")
    if not isinstance(versions, dict) or not all(isinstance(value, str) for value in versions.values()):
        raise ReadinessError(f"{path}: versions is {versions!r}, not texts by name")
    return ReadinessRecord(
        pid=values["pid"],
        start_id=texts["start_id"],
        policy=texts["policy"],
        endpoint=texts["endpoint"],
        identity=texts["identity"],
        versions=versions,
        worker=_text(path, "worker", values.get("worker", "")),
    )


def _text(path: Path, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ReadinessError(f"{path}: {name} is {value!r}, not a text")
    return value
