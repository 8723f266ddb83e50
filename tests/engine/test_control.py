"""Orders of operators on a real engine: pause in the middle of a text, a worker replaced meanwhile, rearm, a cap on
drafts.  The text is that of an engine that never drafts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fault_matrix import ENGINE, TWO
from reference.tiny_checkpoints import BLOCK
from spark_overlay.control.ordering import order, wait_for
from stages import Pair, Stage, TextsByRanks, drafting_stage, make_tiny_pair, texts_by_ranks

pytestmark = pytest.mark.engine

WAIT_S = 30.0
BEGIN, BACK, LATER = 8, 16, 24
"""Steps: the pause, the resume, and a look at what came of it."""
SHORT = {"long": TWO["long"] | {"max_tokens": 30}}


@dataclass
class Controlled:
    """An engine and its control file."""

    stage: Stage
    control: Path

    def order(self, **changes: Any) -> dict[str, Any]:
        """Write an order and wait until the figures show it in effect; the figures."""
        stats, why = wait_for(self.stage.stats_file, order(self.control, "a test", **changes), WAIT_S)
        assert stats is not None, why
        return dict(stats)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_tiny_pair(tmp_path_factory.mktemp("control"))


@pytest.fixture(scope="module")
def plain(pair: Pair) -> TextsByRanks:
    return texts_by_ranks(pair, TWO, **ENGINE)


@pytest.fixture(scope="module", params=[1, 2])
def controlled(request: pytest.FixtureRequest, pair: Pair, plain: TextsByRanks) -> Iterator[Controlled]:
    """Capacity on one rank and on two.  The scheduler does not run ahead, so that a cap bounds what is verified."""
    control = pair.folder / f"control-{request.param}.json"
    made = drafting_stage(
        pair, plain(request.param), TWO, name=f"control-{request.param}", ranks=request.param,
        local_weights=False, settings={"POLICY": "capacity", "CONTROL_FILE": str(control)},
        engine=ENGINE | {"async_scheduling": False}, worker_first=True,
    )  # fmt: skip
    with made as stage:
        stage.connect()
        yield Controlled(stage, control)


def test_a_pause_in_the_middle_of_a_text_leaves_the_worker_alone_and_the_text_as_it_is(
    controlled: Controlled,
) -> None:
    stage = controlled.stage
    assert stage.engine.run(TWO, pauses=[BEGIN, BACK, LATER]) == {"event": "paused", "step": BEGIN}
    stats = controlled.order(state="paused")
    assert (stats["connected"], stats["control"]["state"]) == (False, "paused")
    stage.worker.kill()
    before = stage.counters()
    assert stage.engine.go() == {"event": "paused", "step": BACK}
    assert stage.grown(before).keys() == {"rounds", "rounds_paused"}
    stage.worker.start()
    assert controlled.order(state="active")["connected"] is True
    before = stage.counters()
    stage.worker.blocks()
    assert stage.engine.go() == {"event": "paused", "step": LATER}
    grown = stage.grown(before)
    assert grown["rounds_ok"] == grown["rounds"]
    assert grown["resync_rounds"] == 1
    assert stage.worker.blocks()
    done = stage.engine.go()
    assert done["event"] == "finished", done
    assert done["tokens"] == stage.right(TWO)


def test_a_worker_of_a_wrong_identity_that_is_replaced_is_taken_by_a_rearm(controlled: Controlled) -> None:
    stage = controlled.stage
    stage.worker.kill()
    stage.worker.start(identity="ff" * 32)
    stats = controlled.order(rearm=True)
    assert "ff" * 32 in stats["disabled"]
    before = stage.counters()
    done = stage.engine.run({"long": TWO["long"]})
    assert done["tokens"] == stage.right({"long": TWO["long"]})
    assert stage.grown(before)["fallback_disabled"]
    stage.worker.kill()
    stage.worker.start()
    stats = controlled.order(rearm=True)
    assert (stats["disabled"], stats["connected"], stats["control"]["rearms"]) == ("", True, 2)
    before = stage.counters()
    done = stage.engine.run({"long": TWO["long"]})
    assert done["tokens"] == stage.right({"long": TWO["long"]})
    grown = stage.grown(before)
    assert grown["rounds_ok"]
    assert "rounds_failed" not in grown


def test_a_cap_bounds_what_is_asked_for_and_verified_on_every_rank(controlled: Controlled) -> None:
    stage = controlled.stage
    assert stage.engine.stats()["control"]["depth_note"] == ""
    stage.engine.on_ranks("watch_verified")
    verified = []
    for cap in (2, 0, None):
        controlled.order(depth_max=cap)
        before = stage.counters()
        done = stage.engine.run(SHORT)
        assert done["tokens"] == stage.right(SHORT)
        most = stage.engine.on_ranks("most_verified")
        assert len(set(most)) == 1, f"the ranks verify alike: {most}"
        verified.append(most[0])
        assert stage.grown(before).get("rounds_ok", 0) == 0 or cap != 0
    assert verified == [2, 0, BLOCK]
