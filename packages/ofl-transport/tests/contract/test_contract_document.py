"""Each contract's document shows the tables that the code generates, and has a place for each."""

from enum import Enum

import pytest
from ofl.contract import dspark_v1, engram_v1
from write_tables import DOCUMENTS, DSPARK, ENGRAM, Document, names_in


@pytest.fixture(params=DOCUMENTS, ids=lambda document: document.file)
def document(request: pytest.FixtureRequest) -> Document:
    found: Document = request.param
    return found


def test_the_generated_parts_are_what_the_code_says(document: Document) -> None:
    assert document.rewritten(document.read()) == document.read()


def test_every_part_has_exactly_one_place(document: Document) -> None:
    assert sorted(names_in(document.read())) == sorted(document.parts())


@pytest.mark.parametrize(
    ("document", "statuses"),
    [(DSPARK, (*dspark_v1.Status, *dspark_v1.RequestStatus)), (ENGRAM, engram_v1.Status)],
    ids=["dspark", "engram"],
)
def test_every_status_is_explained(document: Document, statuses: tuple[Enum, ...]) -> None:
    for status in statuses:
        assert document.read().count(f"`{status.name}`") >= 2, f"{status.name} stands in its table only"


def test_a_table_that_was_edited_by_hand_would_be_noticed(document: Document) -> None:
    tampered = document.read().replace("| 4 | u16 | `version` |", "| 4 | u32 | `version` |")
    assert tampered != document.read()
    assert document.rewritten(tampered) == document.read()
