"""The kinds of field that records are made of.  Each says in its JSON Schema all that a schema can say.

Patterns end in `(?!\\n)$`: in Python, `$` alone accepts a trailing newline.
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

NO_DIGEST = "0" * 64
U64_MAX = 2**64 - 1
SAFE_INTEGER_MAX = 2**53 - 1
"""What every JSON reader holds exactly; what may be more stands as a string."""


class Model(BaseModel):
    """A closed record: unknown fields, wrong types and numbers that JSON cannot hold are refused by name."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        regex_engine="python-re",
    )


def _at_most(limit: str) -> str:
    """A pattern of the decimal numbers, written without leading zeros, that are at most `limit`."""
    shorter = "0" if len(limit) == 1 else f"0|[1-9][0-9]{{0,{len(limit) - 2}}}"
    lower = []
    for index, digit in enumerate(limit):
        least = 1 if index == 0 else 0
        if int(digit) > least:
            rest = len(limit) - index - 1
            lower.append(f"{limit[:index]}[{least}-{int(digit) - 1}][0-9]{{{rest}}}")
    return f"^({shorter}|{'|'.join(lower)}|{limit})(?!\\n)$"


def moment(text: str) -> datetime:
    """The time that a `Time` field names.  Raises ValueError where there is no such time."""
    return datetime.fromisoformat(text)


def _is_a_time(text: str) -> str:
    moment(text)
    return text


def text(pattern: str, is_a: str, **more: Any) -> Any:
    """A field of text that matches; `is_a` says in a refusal what it should be."""
    WORDS[pattern] = is_a
    return Field(pattern=pattern, **more)


WORDS: dict[str, str] = {}
"""What a pattern means, for people."""
Sha256 = Annotated[
    str, text(r"^[0-9a-f]{64}(?!\n)$", "a SHA-256 in 64 lower-case hex digits", min_length=64, max_length=64)
]
U64 = Annotated[
    str,
    text(
        _at_most(str(U64_MAX)), "an unsigned 64-bit number in decimal, as text", min_length=1, max_length=20
    ),
]
"""An unsigned 64-bit number, as text: readers that hold numbers as doubles would round it."""
Count = Annotated[int, Field(ge=0, le=SAFE_INTEGER_MAX)]
Number = Annotated[float, Field(ge=-SAFE_INTEGER_MAX, le=SAFE_INTEGER_MAX)]
"""Where canonical JSON would write a double as an integer, it is one that every reader holds exactly."""
Name = Annotated[
    str, text(r"^[a-z][a-z0-9_]{0,99}(?!\n)$", "a name of lower-case letters, digits and underscores")
]
"""Of a check, a subcase, a threshold."""
Identifier = Annotated[
    str, text(r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}(?!\n)$", "an identifier of letters, digits and _ . + -")
]
"""Of a run, a start, an arm."""
Version = Annotated[
    str,
    text(r"^(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}(?!\n)$", "a version of three numbers with dots"),
]
Line = Annotated[
    str, text(r"^[^\x00-\x1f\x7f]{1,1000}(?!\n)$", "one printable line of 1 to 1,000 characters")
]
"""One line of text for people."""
Word = Annotated[str, text(r"^[^\x00-\x1f\x7f]{0,200}(?!\n)$", "printable text of at most 200 characters")]
"""A fact in the words of whoever states it; may be empty."""
Path = Annotated[str, text(r"^[^\x00-\x1f\x7f]{1,999}(?!\n)$", "a printable path of 1 to 999 characters")]
"""Relative to the root of a run, `/` between its parts.  That it stays below the root is a rule's matter."""
Time = Annotated[
    str,
    text(
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?Z(?!\n)$",
        "a time in UTC as RFC 3339 writes it, with a Z",
        json_schema_extra={"format": "date-time"},
    ),
    AfterValidator(_is_a_time),
]
"""RFC 3339, in UTC, `Z`."""


class File(Model):
    """A file of a run.  path: relative to its root."""

    path: Path
    bytes: Count
    sha256: Sha256


class Setting(Model):
    """One setting of an arm."""

    name: Identifier
    value: Word


class ArmDeclaration(Model):
    """An arm as the check declares it: `checks.model.Arm`.  settings: sorted by name."""

    name: Identifier
    speculation: Identifier
    ranks: Annotated[int, Field(ge=1, le=1024)]
    settings: tuple[Setting, ...]
