"""Faults of an arm's table server: what is done to it, when, and what is recorded behind it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ofl.contract import observation_v1 as seen
from qualification.arms.protocol import FaultOrder
from qualification.arms.serve import ArmFailedError
from qualification.arms.table_faults import TableFaults
from qualification.arms.table_ids import NO_ROW, row_id

SERVED, OTHER = Path("served"), Path("other")
GONE, BACK = "kill", "start served"


class Told:
    """A server that only says what is done to it, and whatever else happens, in one order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.faults = TableFaults(self, SERVED, OTHER, lambda: self.said.append("settle"), self.write)  # type: ignore[arg-type]

    def write(self, record: seen.Record) -> None:
        assert isinstance(record, seen.Fault)
        self.said.append(f"{record.moment} {record.request} in {record.step} of {record.case}")

    def start(self, folder: Path) -> None:
        self.said.append(f"start {folder}")

    def __getattr__(self, name: str) -> Any:
        return lambda: self.said.append(name)

    def steps(self, count: int, decoding: Sequence[str] = (), first: int = 1) -> list[str]:
        """So many steps of two layers; what was said in them."""
        self.said.clear()
        for step in range(first, first + count):
            self.faults.before_lookups(step, {"one": "one" in decoding, "two": "two" in decoding})
            for layer in (1, 2):
                self.said.append(f"layer {layer}")
                self.faults.after_lookups()
        return list(self.said)


LAYERS = ["layer 1", "layer 2"]


def test_nothing_happens_before_its_owner_decodes() -> None:
    told = Told()
    told.faults.arm("case", [FaultOrder("one", "server_killed", 2)])
    assert told.said == ["armed one in 0 of case"]
    assert told.steps(2, ["two"]) == [*LAYERS, *LAYERS]


@pytest.mark.parametrize(
    ("action", "strikes", "ends"),
    [
        ("server_killed", [GONE, "struck"], [BACK, "settle", "released"]),
        ("other_manifest", [GONE, "start other", "settle", "struck"], [GONE, BACK, "settle", "released"]),
    ],
)
def test_a_server_is_away_for_whole_steps_and_its_record_stands_behind_what_it_says(
    action: str, strikes: list[str], ends: list[str]
) -> None:
    told = Told()
    told.faults.arm("case", [FaultOrder("one", action, 2)])
    begun, over = (
        [*said[:-1], f"{said[-1]} one in {step} of case"] for said, step in ((strikes, 1), (ends, 3))
    )
    assert told.steps(4, ["one"]) == [*begun, *LAYERS, *LAYERS, *over, *LAYERS, *LAYERS]


def test_a_held_server_goes_on_once_the_lookups_of_one_layer_have_ended() -> None:
    told = Told()
    told.faults.arm("case", [FaultOrder("two", "server_held", 3)])
    assert told.steps(2, ["two"]) == [
        "hold",
        "held two in 1 of case",
        "layer 1",
        "release",
        "settle",
        "released two in 1 of case",
        "layer 2",
        *LAYERS,
    ]


def test_what_a_case_leaves_is_over_before_the_next_and_its_faults_are_gone() -> None:
    told = Told()
    told.faults.arm("first", [FaultOrder("one", "server_killed", 9), FaultOrder("two", "server_held", 1)])
    assert told.steps(1, ["one"])[0] == GONE
    told.said.clear()
    told.faults.arm("second", [])
    assert told.said == [BACK, "settle", "released one in 1 of first"]
    assert told.steps(1, ["one", "two"], first=2) == LAYERS


def test_a_fault_of_another_seam_is_refused() -> None:
    with pytest.raises(ArmFailedError, match="'hold_reply' is no fault of a table server"):
        Told().faults.arm("case", [FaultOrder("one", "hold_reply", 1)])


def test_an_id_follows_from_its_n_gram_layer_and_column_alone() -> None:
    text, other = [5, 6, 7, 8], [1, 2, 7, 8]
    assert row_id(text, 3, 2, 0, 100, 50) == row_id(other, 3, 2, 0, 100, 50)
    assert row_id(text, 3, 2, 1, 100, 10**9) != row_id(other, 3, 2, 1, 100, 10**9)
    found = {row_id(text, 3, layer, column, 0, 10**9) for layer in (2, 5) for column in range(4)}
    assert len(found) == 8
    assert all(100 <= row_id([token] * 4, 3, 2, 0, 100, 50) < 150 for token in range(200))


@pytest.mark.parametrize(
    ("position", "column", "there"), [(0, 0, False), (1, 0, True), (1, 1, False), (2, 1, True)]
)
def test_a_sequence_that_is_shorter_than_the_n_gram_has_no_row(
    position: int, column: int, there: bool
) -> None:
    assert (row_id([3, 4, 5], position, 2, column, 0, 9) != NO_ROW) is there
