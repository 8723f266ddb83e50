"""Whoever gives an order finds in the stats file what all rounds before it came to, as soon as a round is under it."""

import os
from pathlib import Path
from typing import Any

import pytest
from drafter_rig import FACTS, make_settings
from spark_overlay.control.ordering import order
from spark_overlay.round.messages import RoundRequest
from spark_overlay.rounds import RemoteDrafter, session_shape
from spark_overlay.simulation.transport import SimulatedWire
from spark_overlay.simulation.worker import SimulatedWorker


@pytest.fixture
def drafter(tmp_path: Path) -> RemoteDrafter:
    """Without threads, on a clock that stands still; its figures would be written every ten seconds."""
    settings = make_settings(
        CONTROL_FILE=str(tmp_path / "control.json"), STATS_FILE=str(tmp_path / "stats.json"), LOG_EVERY="0"
    )
    worker = SimulatedWorker(session_shape(settings, FACTS))
    return RemoteDrafter(settings, FACTS, connect=SimulatedWire(worker.answer).connect, clock_ns=lambda: 0)


def test_the_first_round_under_an_order_hands_the_figures_out_and_no_other_does(
    drafter: RemoteDrafter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[int] = []

    def post(snapshot: dict[str, Any], *, say: bool = True) -> None:
        assert not say
        posted.append(snapshot["counters"]["rounds"])

    monkeypatch.setattr(drafter._reporter, "post", post)
    assert drafter.control is not None

    def rounds(count: int, first: int) -> None:
        for position in range(first, first + count):
            drafter.round([RoundRequest(0, "r", position, 1, 0, 5, 4)], os.urandom(FACTS.row_bytes))

    drafter.control.turn()
    rounds(3, first=0)
    posted.clear()
    rounds(3, first=3)
    assert posted == []
    for asked in (2, 2, None):  # the same order again is an order too
        order(tmp_path / "control.json", depth_max=asked)
        drafter.control.turn()
        rounds(3, first=6)
    assert posted == [7, 10, 13]
