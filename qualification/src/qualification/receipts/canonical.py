"""JSON in and out.  Out: RFC 8785.  In: strictly, and byte for byte what RFC 8785 would have written.

Whatever the bytes are, reading ends in a value or a `ReceiptError` of one violation.
"""

import hashlib
import json
import reprlib
from typing import Any, NoReturn, TypeVar

import rfc8785
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from qualification.receipts.errors import ReceiptError, Violation, refuse
from qualification.receipts.fields import WORDS

BYTES_MAX = 4 * 1024 * 1024
"""No receipt or record comes near it."""
M = TypeVar("M", bound=BaseModel)
_KINDS = {"extra_forbidden": "unknown_field", "missing": "missing_field"}
_SAYS = {"unknown_field": "is unknown", "missing_field": "is missing"}


class _DuplicateKeyError(ValueError):
    pass


class _NumberError(ValueError):
    pass


def sha256(data: bytes) -> str:
    """Lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def to_bytes(value: BaseModel | dict[str, Any]) -> bytes:
    """Canonical form.  Raises ValueError where a value has none (NaN, infinite, beyond 2^53 - 1, no UTF-8)."""
    plain = value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value
    return rfc8785.dumps(plain)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _DuplicateKeyError(key)
        made[key] = value
    return made


def _no_number(text: str) -> NoReturn:
    raise _NumberError(text)


def _integer(text: str) -> int:
    if len(text) > 17:
        raise _NumberError(text[:40])
    return int(text)


def read_json(data: bytes, where: str) -> Any:
    """Any JSON value.  Raises ReceiptError: `size`, `encoding`, `json`, `duplicate_key` or `number`."""
    if len(data) > BYTES_MAX:
        raise refuse("size", f"it has more than {BYTES_MAX} bytes", where)
    if data.startswith(b"\xef\xbb\xbf"):
        raise refuse("encoding", "it begins with a byte order mark", where)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refuse("encoding", f"byte {error.start} is not UTF-8", where) from None
    try:
        return json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_number, parse_int=_integer)
    except _DuplicateKeyError as error:
        raise refuse("duplicate_key", f"the key {str(error)!r} stands twice in one object", where) from None
    except _NumberError as error:
        raise refuse("number", f"{str(error)!r} is no number that JSON can hold exactly", where) from None
    except json.JSONDecodeError as error:
        raise refuse("json", f"it is no JSON at character {error.pos}: {error.msg}", where) from None
    except RecursionError:
        raise refuse("json", "it is nested too deeply", where) from None


def read_canonical(data: bytes, where: str) -> Any:
    """As `read_json`, and `canonical` where the bytes are not what RFC 8785 makes of the value."""
    value = read_json(data, where)
    try:
        again = rfc8785.dumps(value)
    except (rfc8785.IntegerDomainError, rfc8785.FloatDomainError) as error:
        raise refuse("number", f"a number cannot stand in JSON: {error}", where) from None
    except RecursionError:
        raise refuse("json", "it is nested too deeply", where) from None
    except ValueError:
        raise refuse(
            "encoding", "a text holds half of a surrogate pair, which UTF-8 cannot say", where
        ) from None
    if again != data:
        at = next((i for i, (a, b) in enumerate(zip(again, data, strict=False)) if a != b), len(again))
        raise refuse("canonical", f"byte {at} is not what RFC 8785 writes there", where)
    return value


def field_violations(error: ValidationError, where: str) -> list[Violation]:
    """One violation for each field that is wrong: `unknown_field`, `missing_field` or `field_value`."""
    found = []
    for one in error.errors(include_url=False):
        rule = _KINDS.get(one["type"], "field_value")
        name = ".".join(str(part) for part in one["loc"]) or "(the whole)"
        found.append(Violation(rule, f"field {name} {_SAYS.get(rule) or _wrong(one)}", where))
    return found


def _wrong(error: ErrorDetails) -> str:
    """What the value is and should be; a long one is cut."""
    pattern = error.get("ctx", {}).get("pattern")
    should = (
        f"should be {WORDS[pattern]}" if pattern in WORDS else error["msg"][:1].lower() + error["msg"][1:]
    )
    return f"is {reprlib.repr(error['input'])}: {should}"


def read_model(model: type[M], data: bytes, where: str, *, canonical: bool = True) -> M:
    """A record from its bytes.  Raises ReceiptError: what `read_canonical` does, or every wrong field."""
    if canonical:
        read_canonical(data, where)
    else:
        read_json(data, where)
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise ReceiptError(field_violations(error, where)) from None
