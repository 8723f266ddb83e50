"""Rows that replace others, refused in a message of their own: the drafts behind them in that round are not used."""

import pytest
from ofl.contract.dspark_v1 import RowDtype, RowForm, Shape, Status
from spark_overlay.round.core import RoundCore
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult
from spark_overlay.round.session import SessionState
from spark_overlay.simulation.worker import SimulatedWorker


def make_shape(window: int) -> Shape:
    """1,024-byte rows and 4,096-byte frames: three rows a frame, so that most rounds are split."""
    return Shape(
        identity=bytes(range(32)),
        markov_identity=bytes(range(1, 33)),
        target_binding=bytes(32),
        vocabulary=50_000,
        row_elements=256,
        window=window,
        max_positions=400,
        max_frame_bytes=4096,
        block_length=4,
        max_slots=5,
        tap_count=2,
        row_form=RowForm.RAW,
        row_dtype=RowDtype.FLOAT32,
    )


def draft_over_a_refused_append(window: int) -> RoundResult:
    """Rows that replace others are refused in the first message; the worker drafts from the old ones in the last."""
    shape = make_shape(window)
    core, worker = RoundCore(shape, ring_rows=48, round_bytes_max=1 << 20), SimulatedWorker(shape)
    worker.open_session(1)
    core.open_session(1, shape.max_frame_bytes)

    def replies(first: int, rows: list[bytes], refused: int) -> RoundResult:
        core.begin([RoundRequest(0, "a", first, len(rows), 0, 5, 4)], b"".join(rows))
        frames = core.frames()
        for number, frame in enumerate(frames):
            worker.refuse_with = Status.BUSY if number < refused else None
            body = worker.answer(b"".join(frame.parts))
            if frame is not frames[-1]:
                core.acknowledge(frame.round, body)
        return core.finish(body)

    assert replies(0, [bytes([number]) * shape.row_bytes for number in range(8)], refused=0).ok.all()
    return replies(4, [bytes([100 + number]) * shape.row_bytes for number in range(5)], refused=1)


@pytest.mark.parametrize("window", [0, 5])
def test_drafts_over_a_refused_append_are_not_used(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = draft_over_a_refused_append(window)
    assert result.outcomes.tolist() == [Outcome.UNCONFIRMED]
    assert not result.drafts.any()
    monkeypatch.setattr(SessionState, "confirmed", lambda self, number: True)
    assert draft_over_a_refused_append(window).ok.all(), "the worker did draft, from rows that are not true"
