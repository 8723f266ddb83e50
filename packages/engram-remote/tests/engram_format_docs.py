"""What docs/engram says from the code: the header's fields, the figures' formulas, the manifest's schema.

Run as a script it writes them; the test beside it compares.
"""

import json
import re
from pathlib import Path

from engram_remote.tables.layout import HEADER
from engram_remote.tables.manifest import manifest_schema
from engram_remote.tables.sizing import (
    LOOKUP_ROWS,
    Host,
    Link,
    Table,
    load_figures,
    lookup_figures,
    memory_figures,
)

DOCS = Path(__file__).parents[3] / "docs" / "engram"
SCHEMA, FORMAT, SIZE = DOCS / "manifest.schema.json", DOCS / "format.md", DOCS / "size.md"


def schema_text() -> str:
    """The schema's file."""
    return json.dumps(manifest_schema(), indent=2) + "\n"


def header_table() -> str:
    """Offsets, types, names and meanings of the shard's header."""
    lines = ["| offset | type | field | meaning |", "| --- | --- | --- | --- |"]
    for field in HEADER.fields:
        meaning = field.meaning or "zero"
        lines.append(f"| {HEADER.offsets[field.name]} | {field.kind} | `{field.name}` | {meaning} |")
    return "\n".join([*lines, "", f"{HEADER.size} bytes.", ""])


def figures_table() -> str:
    """Name, unit and formula of every figure that `size` prints; the lookup's for one count of rows."""
    table, link = Table([1], 256, 8, 1), Link(1, 1)
    host = Host(1, 1, 1, 1, 1, 1, 4096, 0)
    figures = [*memory_figures(table, host), *load_figures(table, host)]
    figures += lookup_figures(table, host, link, LOOKUP_ROWS[0])
    lines = ["| figure | name | unit | formula |", "| --- | --- | --- | --- |"]
    for figure in figures:
        name = figure.name.replace(str(LOOKUP_ROWS[0]), "ROWS")
        title = figure.title.replace(f" of {LOOKUP_ROWS[0]} rows", "")
        lines.append(f"| {title} | `{name}` | {figure.unit} | {figure.formula} |")
    return "\n".join([*lines, ""])


def with_part(text: str, name: str, part: str) -> str:
    """A document with its generated part replaced.  Raises AssertionError where it has no such part, or two."""
    pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
    changed, count = re.subn(pattern, lambda found: found[1] + part + found[2], text, flags=re.DOTALL)
    assert count == 1, f"{count} parts {name}"
    return changed


def documents() -> dict[Path, str]:
    """Every file as it must be."""
    return {
        SCHEMA: schema_text(),
        FORMAT: with_part(FORMAT.read_text(encoding="utf-8"), "shard-header", header_table()),
        SIZE: with_part(SIZE.read_text(encoding="utf-8"), "figures", figures_table()),
    }


if __name__ == "__main__":
    for file, content in documents().items():
        file.write_text(content, encoding="utf-8")
