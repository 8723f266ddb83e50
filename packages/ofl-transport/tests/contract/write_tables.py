"""Writes the generated parts of docs/contract/dspark-v1.md: `python write_tables.py`; a test compares them.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; everything else there is written by hand.
"""

import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from ofl.contract.dspark_v1 import layout
from ofl.contract.dspark_v1.rules import COMPARED, NEGOTIATED
from ofl.contract.records import Record

DOCUMENT = Path(__file__).parents[4] / "docs" / "contract" / "dspark-v1.md"
_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LIMITS = {
    "BLOCK_LENGTH_MAX": "draft positions of a block",
    "SLOTS_MAX": "slots of a session",
    "TAPS_MAX": "target layers tapped",
    "FRAME_BYTES_MIN": "least max_frame_bytes, bytes",
    "FRAME_BYTES_MAX": "largest max_frame_bytes, bytes",
    "NAME_BYTES": "worker's name, bytes of UTF-8",
    "FIELD_BYTES_MAX": "field name in a refusal, bytes of ASCII",
    "DETAIL_BYTES_MAX": "clause in a refusal, bytes of UTF-8",
    "STATS_BYTES_MAX": "STATS text, bytes of UTF-8",
}


def parts() -> dict[str, str]:
    """Every generated part by its name."""
    found = {f"record-{record.name}": _record(record) for record in layout.RECORDS}
    found |= {f"enum-{kind.__name__}": _enum(kind) for kind in layout.ENUMS}
    limits = ((f"`{name}`", getattr(layout, name), text) for name, text in _LIMITS.items())
    found["limits"] = _table(("limit", "value", "of"), limits)
    found["compared"] = ", ".join(f"`{name}`" for name in COMPARED) + "\n"
    found["negotiated"] = ", ".join(f"`{name}`" for name in NEGOTIATED) + "\n"
    return found


def names_in(text: str) -> list[str]:
    """The parts that a document has places for."""
    return [match.group(2) for match in _PART.finditer(text)]


def rewritten(text: str) -> str:
    """The document with its generated parts as they must be."""
    made = parts()
    return _PART.sub(lambda match: match.group(1) + made[match.group(2)] + match.group(3), text)


def _record(record: Record) -> str:
    rows = (
        (record.offsets[field.name], field.kind, f"`{field.name}`", field.meaning or "zero")
        for field in record.fields
    )
    return _table(("offset", "type", "field", "meaning"), rows) + f"\n{record.size} bytes.\n"


def _enum(kind: type[Enum]) -> str:
    flags = issubclass(kind, layout.EntryFlag | layout.HelloFlag)
    members = [(member.value, f"`{member.name}`") for member in kind if not (flags and member.value == 0)]
    return _table(("value", "name"), members)


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
