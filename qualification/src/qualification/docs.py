"""`python -m qualification.docs FOLDER`: rewrites the generated parts of docs/qualification.

A generated part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; a test compares.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from qualification.receipts.rules import RULES, STAGES


def rules_table() -> str:
    """A Markdown table per stage, in the order of judging."""
    parts = []
    for stage, title in STAGES.items():
        rows = [f"| `{rule.id}` | {rule.holds} |" for rule in RULES if rule.stage == stage]
        parts.append("\n".join([f"### {title}", "", "| Rule | What holds |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def parts() -> dict[str, dict[str, str]]:
    """The generated parts by file and name."""
    return {"receipts.md": {"rules": rules_table()}}


def rewritten(text: str, made: Mapping[str, str]) -> str:
    """The text with its generated parts made anew.  Raises ValueError naming a part that it does not have."""
    for name, part in made.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"there is no part {name!r}")
        text = f"{before}{begin}{part}{end}{after}"
    return text


def main() -> None:
    """Rewrite the files in the folder given."""
    folder = Path(sys.argv[1])
    for name, made in parts().items():
        path = folder / name
        path.write_text(rewritten(path.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main()
