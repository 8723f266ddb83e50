"""What a control file says: one typed record, read strictly.  Pure; must never touch a file.

A record is whole: whoever changes one thing repeats the rest, under the lock of `files.changed`.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from ofl.contract.records import printable
from pydantic import BaseModel, ConfigDict, Field, ValidationError

SCHEMA_VERSION = 1
RECORD_BYTES_MAX = 1 << 14
REASON_CHARACTERS_MAX = 500
REARM_MAX = (1 << 53) - 1
"""The largest integer that every reader of JSON keeps exactly."""
DEPTH_MAX = 1024

State = Literal["active", "paused"]
Reason = Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)]


class ControlFileError(Exception):
    """A control file that is not used, or not written; the text is one sentence without the file's name."""


class ControlRecord(BaseModel):
    """What operators ask of a running engine.  A missing file says what a new record says: active, nothing else.

    state: `paused`: rounds go without remote drafts.  rearm: grows with each rearm; an engine acts on every value other
    than the one that it knew.  depth_max: draft positions that are asked for, at most, 0 for none; None: no cap.
    reason: for logs and figures.  written_at: Unix time in seconds; with written_by_uid it is what the writer said,
    nothing more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    schema_version: Literal[1] = 1
    state: State = "active"
    rearm: Annotated[int, Field(ge=0, le=REARM_MAX)] = 0
    depth_max: Annotated[int, Field(ge=0, le=DEPTH_MAX)] | None = None
    reason: Reason = ""
    written_at: Annotated[float, Field(ge=0)] = 0.0
    written_by_uid: Annotated[int, Field(ge=0)] = 0

    def changed(self, **changes: object) -> "ControlRecord":
        """With these values instead, checked.  Raises ControlFileError, naming the field at fault."""
        return _checked(self.model_dump() | changes)

    def encoded(self) -> bytes:
        """As the file holds it."""
        return (json.dumps(self.model_dump(), indent=1, allow_nan=False) + "\n").encode()


def parse_record(data: bytes) -> ControlRecord:
    """The record in a file's bytes.  Raises ControlFileError, naming the field at fault."""
    if len(data) > RECORD_BYTES_MAX:
        raise ControlFileError(f"holds more than the {RECORD_BYTES_MAX} bytes that a record may have")
    try:
        values = json.loads(data, object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        raise ControlFileError(f"is not JSON ({printable(str(error))})") from None
    if not isinstance(values, dict):
        raise ControlFileError("is not a JSON object")
    version = values.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ControlFileError(
            f"schema_version is {_shown(version)}, and this version reads {SCHEMA_VERSION}"
        )
    return _checked(values)


def _checked(values: dict[str, Any]) -> ControlRecord:
    try:
        return ControlRecord.model_validate(values)
    except ValidationError as error:
        found = error.errors()[0]
        name = printable(str(found["loc"][0]))[:80]
        if found["type"] == "extra_forbidden":
            raise ControlFileError(f"{name} is no field of a control record") from None
        raise ControlFileError(f"{name} is {_shown(found['input'])}: {found['msg']}") from None


def _once_each(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object; json.loads would keep the last of two values under one name."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return values


def _shown(value: object) -> str:
    text = printable(repr(value))
    return text if len(text) <= 80 else f"{text[:80]}…"
