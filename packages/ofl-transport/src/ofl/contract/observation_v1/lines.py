"""Observations to JSON lines and back.

A line is one JSON object: `index`, `time_ns`, `kind`, then the record's fields in the order of their declaration.
Any bytes give an observation or an ObservationError that names the field; nothing else is raised.  Accepted bytes that
this module wrote are written again as they were.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from ofl.contract.observation_v1.records import KINDS, BlindTag, Observation, Record

LINE_BYTES_MAX = 1 << 20
"""Of one line: an engine of 1024 slots says less than 400 bytes of each in a record."""
INTEGER_MAX = (1 << 63) - 1
"""No count, position, time or epoch is larger; it keeps a line readable to whoever has 64-bit integers alone."""
Check = Callable[[object, str], Any]
_TAG = re.compile(r"([0-9a-f]{32})?")


class ObservationError(ValueError):
    """A line is none of this schema's.  field: what is at fault, as a path in the line, or "line"."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field, self.detail = field, detail


def write_line(observation: Observation) -> bytes:
    """One line, with its end.  Raises ObservationError where the values could not be read back."""
    record = observation.record
    values = {
        "index": observation.index,
        "time_ns": observation.time_ns,
        "kind": record.kind,
        **_plain(record),
    }
    _observation(values)
    return _encoded(values) + b"\n"


def read_line(line: bytes) -> Observation:
    """What `write_line` wrote, its end included.  Raises ObservationError."""
    if len(line) > LINE_BYTES_MAX:
        raise ObservationError("line", f"{len(line)} bytes where {LINE_BYTES_MAX} are the limit")
    if not line.endswith(b"\n") or b"\n" in line[:-1]:
        raise ObservationError("line", "one line with its end is needed")
    try:
        values = json.loads(line.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ObservationError("line", "it is not UTF-8") from None
    except RecursionError:
        raise ObservationError("line", "it is nested too deep") from None
    except ObservationError:
        raise
    except ValueError as error:
        raise ObservationError("line", f"it is not JSON: {error}"[:200]) from None
    return _observation(values)


# --- out -------------------------------------------------------------------------------------------------


def _plain(record: object) -> dict[str, object]:
    """A record's fields by name, as JSON has them."""
    return {field.name: _plain_value(getattr(record, field.name)) for field in fields(record)}  # type: ignore[arg-type]


def _plain_value(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain_value(each) for each in value]
    return _plain(value) if is_dataclass(value) else value


def _encoded(values: object) -> bytes:
    try:
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ObservationError("line", "a text that is not Unicode") from None


# --- in --------------------------------------------------------------------------------------------------


def _observation(values: object) -> Observation:
    """The observation of a JSON object."""
    if not isinstance(values, dict):
        raise ObservationError("line", "an object is needed")
    for name in ("index", "time_ns", "kind"):
        if name not in values:
            raise ObservationError(name, "it is missing")
    kind = _text(values["kind"], "kind")
    if kind not in KINDS:
        raise ObservationError("kind", f"{kind!r} is no record of this schema"[:200])
    own = {name: value for name, value in values.items() if name not in ("index", "time_ns", "kind")}
    index, time_ns = (_count(values[name], name) for name in ("index", "time_ns"))
    record: Record = _READERS[KINDS[kind]](own, kind)
    return Observation(index, time_ns, record)


def _count(value: object, where: str) -> int:
    number = _integer(value, where)
    if number < 0:
        raise ObservationError(where, f"{number} is below 0")
    return number


def _integer(value: object, where: str) -> int:
    if type(value) is not int:
        raise ObservationError(where, f"an integer is needed, not {_named(value)}")
    if not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise ObservationError(where, "an integer of 64 bits is needed")
    return value


def _number(value: object, where: str) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise ObservationError(where, f"a finite number with a fraction is needed, not {_named(value)}")
    return value


def _text(value: object, where: str) -> str:
    if type(value) is not str:
        raise ObservationError(where, f"a text is needed, not {_named(value)}")
    if not value.isprintable():
        raise ObservationError(where, "a character in it cannot be printed")
    return value


def _tag(value: object, where: str) -> str:
    text = _text(value, where)
    if not _TAG.fullmatch(text):
        # Never the text itself: it may be content.
        raise ObservationError(where, "32 hex digits or nothing are needed")
    return text


def _truth(value: object, where: str) -> bool:
    if type(value) is not bool:
        raise ObservationError(where, f"true or false is needed, not {_named(value)}")
    return value


def _named(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _tuple_of(check: Check) -> Check:
    def checked(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ObservationError(where, f"a list is needed, not {_named(value)}")
        return tuple(check(each, f"{where}[{at}]") for at, each in enumerate(value))

    return checked


def _record(made: type[Any], checks: Mapping[str, Check]) -> Check:
    def checked(value: object, where: str) -> Any:
        if not isinstance(value, dict):
            raise ObservationError(where, f"an object is needed, not {_named(value)}")
        for name in value:
            if name not in checks:
                raise ObservationError(f"{where}.{name}"[:200], "there is no such field")
        for name in checks:
            if name not in value:
                raise ObservationError(f"{where}.{name}", "it is missing")
        return made(**{name: check(value[name], f"{where}.{name}") for name, check in checks.items()})

    return checked


def _check_of(hint: Any) -> Check:
    if get_origin(hint) is tuple:
        return _tuple_of(_check_of(get_args(hint)[0]))
    plain: dict[Any, Check] = {int: _integer, float: _number, str: _text, bool: _truth, BlindTag: _tag}
    return plain[hint] if hint in plain else _reader(hint)


def _reader(made: type[Any]) -> Check:
    hints = get_type_hints(made, include_extras=True)
    return _record(made, {field.name: _check_of(hints[field.name]) for field in fields(made)})


_READERS: dict[type[Any], Check] = {made: _reader(made) for made in KINDS.values()}


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ObservationError(twice[:200], "it is given twice")
    return made


def _no_constant(name: str) -> object:
    raise ObservationError("line", f"{name} is not a number")
