"""Writes the generated parts of the contracts' documents: `python write_tables.py`; a test compares them.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; everything else there is written by hand.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag
from pathlib import Path
from types import ModuleType

from ofl.contract.dspark_v1 import layout as dspark_layout
from ofl.contract.dspark_v1.rules import COMPARED, NEGOTIATED
from ofl.contract.engram_v1 import layout as engram_layout
from ofl.contract.records import Record

FOLDER = Path(__file__).parents[4] / "docs" / "contract"
_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHARED_LIMITS = {
    "FIELD_BYTES_MAX": "field name in a refusal, bytes of ASCII",
    "DETAIL_BYTES_MAX": "clause in a refusal, bytes of UTF-8",
    "STATS_BYTES_MAX": "STATS text, bytes of UTF-8",
}


@dataclass(frozen=True)
class Document:
    """One contract's document.  limits: names in its layout, with what they are of.  lists: parts of names alone."""

    file: str
    layout: ModuleType
    limits: Mapping[str, str]
    lists: Mapping[str, Iterable[str]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    def read(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def parts(self) -> dict[str, str]:
        """Every generated part by its name."""
        found = {f"record-{record.name}": _record(record) for record in self.layout.RECORDS}
        found |= {f"enum-{kind.__name__}": _enum(kind) for kind in self.layout.ENUMS}
        limits = ((f"`{name}`", getattr(self.layout, name), text) for name, text in self.limits.items())
        found["limits"] = _table(("limit", "value", "of"), limits)
        for name, names in self.lists.items():
            found[name] = ", ".join(f"`{one}`" for one in names) + "\n"
        return found

    def rewritten(self, text: str) -> str:
        """The document with its generated parts as they must be."""
        made = self.parts()
        return _PART.sub(lambda match: match.group(1) + made[match.group(2)] + match.group(3), text)


DSPARK = Document(
    "dspark-v1.md",
    dspark_layout,
    {
        "BLOCK_LENGTH_MAX": "draft positions of a block",
        "SLOTS_MAX": "slots of a session",
        "TAPS_MAX": "target layers tapped",
        "FRAME_BYTES_MIN": "least max_frame_bytes, bytes",
        "FRAME_BYTES_MAX": "largest max_frame_bytes, bytes",
        "NAME_BYTES": "worker's name, bytes of UTF-8",
        **_SHARED_LIMITS,
    },
    {"compared": COMPARED, "negotiated": NEGOTIATED},
)
ENGRAM = Document(
    "engram-v1.md",
    engram_layout,
    {
        "LAYERS_MAX": "layers of an OPEN, parts of a LOOKUP",
        "RANKS_MAX": "shards of a layer",
        "COLUMNS_MAX": "values of a row",
        "BATCH_ROWS_MAX": "rows of a LOOKUP",
        "NO_ROW": "the id that asks for no row",
        "PLANE_ALIGNMENT": "bytes that every plane of a reply begins at a multiple of",
        **_SHARED_LIMITS,
    },
)
DOCUMENTS = (DSPARK, ENGRAM)


def names_in(text: str) -> list[str]:
    """The parts that a document has places for."""
    return [match.group(2) for match in _PART.finditer(text)]


def _record(record: Record) -> str:
    rows = (
        (record.offsets[field.name], field.kind, f"`{field.name}`", field.meaning or "zero")
        for field in record.fields
    )
    return _table(("offset", "type", "field", "meaning"), rows) + f"\n{record.size} bytes.\n"


def _enum(kind: type[Enum]) -> str:
    flags = issubclass(kind, Flag)
    members = [(member.value, f"`{member.name}`") for member in kind if not (flags and member.value == 0)]
    return _table(("value", "name"), members)


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.path.write_text(document.rewritten(document.read()), encoding="utf-8")
