"""`python -m qualification.docs FOLDER`: rewrites the generated parts of docs/qualification.

A generated part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; a test compares.
"""

import sys
from pathlib import Path

from ofl.documents import rewrite

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


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]), parts())
