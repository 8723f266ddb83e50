"""A message whose acknowledgement never comes costs a round, not the request's drafts for the rest of its life."""

import os
from collections.abc import Callable, Sequence

import pytest
from drafter_rig import FULL_ATTENTION as FACTS
from drafter_rig import make_settings
from ofl.contract.dspark_v1 import Kind, Op, Step, decode_request, peek
from ofl.contract.records import Buffer
from ofl.faults import Fault, Planned, faulty_connect
from spark_overlay.round.messages import Outcome, RoundRequest
from spark_overlay.rounds import RemoteDrafter, session_shape
from spark_overlay.simulation.clock import SimulatedClock
from spark_overlay.simulation.transport import SimulatedWire
from spark_overlay.simulation.worker import SimulatedWorker, drafts_of


class FirstAppend:
    """A plan with one fault, for the first STEP that wants no drafts."""

    def __init__(self, fault: Fault) -> None:
        self._planned: Planned | None = Planned(fault)
        self.is_append: Callable[[bytes], bool] = lambda body: False

    def for_connect(self) -> Planned | None:
        return None

    def for_call(self, parts: Sequence[Buffer]) -> Planned | None:
        if self._planned is None or not self.is_append(b"".join(parts)):
            return None
        planned, self._planned = self._planned, None
        return planned


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.LOSE_REPLY])
def test_rows_whose_acknowledgement_is_lost_are_sent_again_in_the_next_round(fault: Fault) -> None:
    settings = make_settings(FRAME_BYTES="9000")  # four rows of 2,048 bytes
    shape, clock, plan = session_shape(settings, FACTS), SimulatedClock(), FirstAppend(fault)
    wire = SimulatedWire(SimulatedWorker(shape).answer)

    def is_append(body: bytes) -> bool:
        if peek(body, Kind.REQUEST).op is not Op.STEP:
            return False
        _, step = decode_request(body, shape)
        assert isinstance(step, Step)
        return not any(entry.n_out for entry in step.entries)

    plan.is_append = is_append
    connect = faulty_connect(wire.connect, plan, clock_ns=clock, sleep_until=clock.run_until)
    drafter = RemoteDrafter(settings, FACTS, connect=connect, clock_ns=clock)
    assert drafter.link.attempt()
    rows = [os.urandom(FACTS.row_bytes) for _ in range(20)]
    lost = drafter.round([RoundRequest(1, "a", 0, 20, 0, 5, 4)], b"".join(rows))
    assert lost.outcomes[0] in (Outcome.UNCONFIRMED, Outcome.GAP, Outcome.NEEDS_RESET)
    assert not lost.drafts.any()
    rows.append(os.urandom(FACTS.row_bytes))
    again = drafter.round([RoundRequest(1, "a", 20, 1, 0, 7, 4)], rows[20])
    assert again.ok.all()
    assert again.drafts[0].tolist() == list(drafts_of(rows, 7, 4, FACTS.vocabulary))
