"""The JSON Schema (2020-12) of a line, for readers in other languages: closed, made from the records.

`python -m ofl.contract.observation_v1.schema` prints it; docs/contract/observation-v1.schema.json is compared with it.
JSON Schema takes 1.0 for an integer and the last of two equal names: `lines` refuses both.
"""

import json
import sys
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from ofl.contract.observation_v1.lines import INTEGER_MAX
from ofl.contract.observation_v1.records import KINDS, SCHEMA, BlindTag

PLAIN: dict[Any, dict[str, Any]] = {
    int: {"type": "integer", "minimum": -INTEGER_MAX, "maximum": INTEGER_MAX},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    BlindTag: {"type": "string", "pattern": get_args(BlindTag)[1]},
}


def schema() -> dict[str, Any]:
    """Of one line."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "oneOf": [_line(kind, made) for kind, made in KINDS.items()],
    }


def _line(kind: str, made: type[Any]) -> dict[str, Any]:
    count = {"type": "integer", "minimum": 0, "maximum": INTEGER_MAX}
    head = {"index": count, "time_ns": count, "kind": {"const": kind}}
    return _closed(head | _properties(made))


def _properties(made: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(made, include_extras=True)
    return {field.name: _of(hints[field.name]) for field in fields(made)}


def _of(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _of(get_args(hint)[0])}
    return PLAIN[hint] if hint in PLAIN else _closed(_properties(hint))


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text() -> str:
    """The file's."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
