"""The generated parts of docs/qualification are those of the code."""

from pathlib import Path

import pytest
from ofl.documents import rewritten
from qualification.docs import parts
from qualification.receipts.rules import RULES

FOLDER = Path(__file__).parents[3] / "docs" / "qualification"


@pytest.mark.parametrize("name", parts())
def test_the_committed_page_is_what_would_be_written(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert rewritten(text, parts()[name]) == text


def test_every_rule_stands_on_the_page_once() -> None:
    text = (FOLDER / "receipts.md").read_text(encoding="utf-8")
    assert [text.count(f"| `{rule.id}` | {rule.holds} |") for rule in RULES] == [1] * len(RULES)


def test_a_page_without_the_part_is_refused() -> None:
    with pytest.raises(ValueError, match="no part 'rules'"):
        rewritten("# Nothing", {"rules": ""})
