"""The gather against the formulas of the contract: valid rows, their positions, anchors, bytes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from spark_overlay.gather import StepInputs, TapGather, Trimmed  # noqa: E402  # needs torch

pytestmark = pytest.mark.engine

TAPS, HIDDEN, MAX_REQUESTS, MAX_TOKENS, DRAFTS = 3, 4, 5, 40, 5


def make_gather(window: int = 0, dtype: Any = torch.float32) -> TapGather:
    return TapGather(
        max_requests=MAX_REQUESTS,
        max_tokens=MAX_TOKENS,
        max_drafts=DRAFTS,
        tap_count=TAPS,
        hidden_size=HIDDEN,
        dtype=dtype,
        device=torch.device("cpu"),
        window=window,
    )


def make_step(
    lengths: list[int], rejected: list[int], sampled: list[int], slots: list[int], dtype: Any
) -> StepInputs:
    """A step whose request i starts at position 100 * i, and whose taps all differ; buffers are longer than
    the step.
    """
    tokens = sum(lengths)
    taps = [
        (torch.arange((tokens + 3) * HIDDEN).view(-1, HIDDEN) + 1000 * tap).to(dtype) for tap in range(TAPS)
    ]
    positions = torch.cat([100 * index + torch.arange(length) for index, length in enumerate(lengths)])
    return StepInputs(
        taps=taps,
        positions=positions.to(torch.int64),
        num_sampled=torch.tensor(sampled, dtype=torch.int32),
        num_rejected=torch.tensor(rejected, dtype=torch.int32),
        last_sampled=torch.arange(MAX_REQUESTS, dtype=torch.int64).view(-1, 1) + 700,
        next_prefill=torch.arange(MAX_REQUESTS, dtype=torch.int32).view(1, -1) + 800,
        slots=torch.tensor(slots),
        starts=np.cumsum([0, *lengths]).astype(np.int32),
        draft_counts=np.array(rejected, dtype=np.int32),
    )


def expected_rows(step: StepInputs, first: int, count: int) -> bytes:
    """Rows first .. of the step: all taps of a token side by side."""
    rows = torch.cat([tap[first : first + count] for tap in step.taps], dim=-1)
    return bytes(rows.contiguous().view(torch.uint8).numpy().tobytes())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_positions_and_anchors_are_those_of_each_requests_valid_tokens(dtype: Any) -> None:
    step = make_step([6, 20, 1], rejected=[2, 0, 0], sampled=[4, 0, 1], slots=[3, 0, 4], dtype=dtype)
    gather = make_gather(dtype=dtype)
    gathered = gather.gather(step)
    assert gathered.n_rows.tolist() == [4, 20, 1]
    assert gathered.first_positions.tolist() == [0, 100, 200]
    # Slots 3 and 4 have sampled, slot 0 is still reading its prompt.
    assert gathered.anchors.tolist() == [703, 800, 704]
    assert gathered.num_sampled.tolist() == [4, 0, 1]
    starts = step.starts
    for index in range(3):
        first = int(gathered.row_offsets[index]) * gather.row_bytes
        size = int(gathered.n_rows[index]) * gather.row_bytes
        assert bytes(gathered.rows[first : first + size]) == expected_rows(
            step, int(starts[index]), int(gathered.n_rows[index])
        )


def test_with_a_window_only_the_rows_that_it_can_reach_are_copied() -> None:
    step = make_step([30, 6, 3], rejected=[0, 1, 0], sampled=[0, 5, 1], slots=[0, 1, 2], dtype=torch.float32)
    gather = make_gather(window=4)
    gathered = gather.gather(step)
    # 30 rows leave 4; 6 rows with one rejected leave the 4 before it and the one that may have been rejected.
    assert gathered.n_rows.tolist() == [4, 4, 3]
    assert gathered.first_positions.tolist() == [26, 101, 200]
    assert gathered.row_offsets.tolist() == [0, 4, 9]
    assert len(gathered.rows) == (4 + 5 + 3) * gather.row_bytes
    for index, first in enumerate((26, 30 + 1, 36)):
        offset = int(gathered.row_offsets[index]) * gather.row_bytes
        size = int(gathered.n_rows[index]) * gather.row_bytes
        assert bytes(gathered.rows[offset : offset + size]) == expected_rows(
            step, first, int(gathered.n_rows[index])
        )


def test_the_buffer_holds_the_largest_step_and_no_more() -> None:
    assert make_gather().max_rows == MAX_TOKENS
    # Five requests of at most 1 + 5 rows each.
    assert make_gather(window=1).max_rows == MAX_REQUESTS * (1 + DRAFTS)
    full = make_gather()
    step = make_step([8] * 5, rejected=[0] * 5, sampled=[1] * 5, slots=[0, 1, 2, 3, 4], dtype=torch.float32)
    gathered = full.gather(step)
    assert int(gathered.n_rows.sum()) == MAX_TOKENS
    assert len(gathered.rows) == MAX_TOKENS * full.row_bytes


def test_a_second_step_leaves_nothing_of_the_first() -> None:
    gather = make_gather()
    gather.gather(make_step([40], [0], [1], [0], torch.float32))
    step = make_step([2, 2], [1, 0], [1, 1], [2, 1], torch.float32)
    gathered = gather.gather(step)
    assert gathered.n_rows.tolist() == [1, 2]
    assert len(gathered.rows) == 4 * gather.row_bytes
    assert bytes(gathered.rows) == expected_rows(step, 0, 4)


def test_taps_of_another_number_or_width_are_refused_with_both_shapes() -> None:
    step = make_step([2], [0], [1], [0], torch.float32)
    for taps in (step.taps[:2], [tap[:, :3] for tap in step.taps], ()):
        broken = StepInputs(**{**vars(step), "taps": taps})
        with pytest.raises(ValueError, match="configuration says 3 of 4"):
            make_gather().gather(broken)


def test_a_row_that_the_target_trimmed_never_leaves() -> None:
    """Of 10 rows the target kept the last 3, of 5 all, of 4 none."""
    step = make_step([10, 5, 4], rejected=[0, 1, 0], sampled=[1, 4, 0], slots=[0, 1, 2], dtype=torch.float32)
    gather = make_gather()
    gathered = gather.gather(StepInputs(**{**vars(step), "first_valid": np.array([7, 10, 19], np.int32)}))
    assert gathered.n_rows.tolist() == [3, 4, 0]
    assert gathered.first_positions.tolist() == [7, 100, 204]
    assert bytes(gathered.rows) == expected_rows(step, 7, 8)
    assert gathered.anchors.tolist() == [700, 701, 802]


@pytest.mark.parametrize("window", [0, 4])
def test_of_a_step_that_the_device_trimmed_the_devices_boundaries_hold(window: int) -> None:
    # Of six scheduled drafts three were left out: the device gave all three to request 1, the host split them evenly.
    true = make_step([1, 4, 20], rejected=[0, 2, 0], sampled=[1, 2, 0], slots=[0, 1, 2], dtype=torch.float32)
    trimmed = Trimmed(torch.from_numpy(true.starts.copy()), np.array([1, 1, 20], np.int32))
    step = replace(
        true,
        starts=np.array([0, 3, 5, 25], np.int32),
        draft_counts=np.array([3, 3, 0], np.int32),
        trimmed=trimmed,
    )
    gather, plain = make_gather(window), make_gather(window)
    gathered = gather.gather(step)
    expected = plain.gather(replace(true, draft_counts=np.array([0, 3, 0], np.int32)))
    assert gathered.draft_counts.tolist() == [0, 3, 0]
    for name in ("first_positions", "n_rows", "row_offsets", "anchors", "num_sampled"):
        assert getattr(gathered, name).tolist() == getattr(expected, name).tolist(), name
    assert bytes(gathered.rows) == bytes(expected.rows)
    assert gathered.first_positions.tolist()[:2] == [0, 100]
