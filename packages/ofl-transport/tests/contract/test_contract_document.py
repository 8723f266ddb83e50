"""docs/contract/dspark-v1.md shows the tables that the code generates, and has a place for each."""

import write_tables
from ofl.contract.dspark_v1 import RequestStatus, Status

TEXT = write_tables.DOCUMENT.read_text(encoding="utf-8")


def test_the_generated_parts_are_what_the_code_says() -> None:
    assert write_tables.rewritten(TEXT) == TEXT


def test_every_part_has_exactly_one_place() -> None:
    assert sorted(write_tables.names_in(TEXT)) == sorted(write_tables.parts())


def test_every_status_is_explained() -> None:
    for status in (*Status, *RequestStatus):
        assert TEXT.count(f"`{status.name}`") >= 2, f"{status.name} stands in its table only"


def test_a_table_that_was_edited_by_hand_would_be_noticed() -> None:
    tampered = TEXT.replace("| 4 | u16 | `version` |", "| 4 | u32 | `version` |")
    assert tampered != TEXT
    assert write_tables.rewritten(tampered) == TEXT
