"""Shadow's agreement, with figures worked out by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.agreement import (
    EXAMPLES_MAX,
    INELIGIBLE,
    REQUEST_ID_CHARACTERS_MAX,
    Agreement,
)
from spark_overlay.round.messages import Outcome, RoundRequest, RoundResult

MAX_POSITIONS = 100


def a_request(name: str = "r", end: int = 20, n_out: int = 4) -> RoundRequest:
    """A request whose anchor is at position end."""
    return RoundRequest(0, name, end - 2, 2, 0, 77, n_out)


def remote(
    *drafts: list[int], margin: float = 0.5, margins: list[list[float]] | None = None, reason: str = ""
) -> RoundResult:
    ids = np.array(drafts, np.int32)
    return RoundResult(
        drafts=ids,
        confidences=np.full(ids.shape, 0.9, np.float32),
        margins=np.full(ids.shape, margin, np.float32) if margins is None else np.array(margins, np.float32),
        partial=np.zeros(len(ids), np.bool_),
        ok=np.full(len(ids), not reason),
        outcomes=np.full(len(ids), Outcome.ROUND_FAILED if reason else Outcome.OK, np.int32),
        reason=reason,
    )


def local(*drafts: list[int]) -> np.ndarray:
    return np.array(drafts, np.int64)


def test_figures_of_four_blocks_worked_out_by_hand() -> None:
    agreement = Agreement(MAX_POSITIONS)
    ours = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
    # Whole block; first mismatch at 2, where position 3 agrees by chance; at 2; at 0.
    theirs = [[1, 2, 3, 4], [1, 2, 9, 4], [1, 2, 9, 9], [9, 2, 3, 4]]
    agreement.record(local(*ours), [a_request()] * 4, remote(*theirs))
    summary = agreement.summary()
    assert summary["eligible"] == 4
    assert summary["eligible_share"] == 1.0
    assert summary["first_mismatch_hist"] == [1, 0, 2, 0, 1]
    # Position 0: all four compared, three agree.  1: three compared, three agree.  2: three, one.  3: one, one; the
    # agreement by chance behind a mismatch is not looked at.
    assert summary["compared_by_position"] == [4, 3, 3, 1]
    assert summary["agreed_by_position"] == [3, 3, 1, 1]
    assert summary["agree_rate_by_position"] == [0.75, 1.0, 0.333333, 1.0]
    assert summary["full_block_agree_rate"] == 0.25
    assert summary["mismatches"] == 3


def test_a_mismatch_is_handed_over_and_kept_whole() -> None:
    agreement = Agreement(MAX_POSITIONS)
    theirs = remote([1, 7, 8, 4], margins=[[2.0, 0.25, 0.5, 1.0]])
    (mismatch,) = agreement.record(local([1, 2, 3, 4]), [a_request("req-9", end=30)], theirs)
    assert (mismatch.request_id, mismatch.position, mismatch.anchor) == ("req-9", 30, 77)
    assert (mismatch.local, mismatch.remote) == ((1, 2, 3, 4), (1, 7, 8, 4))
    assert (mismatch.first_mismatch, mismatch.remote_margin, mismatch.near_tie) == (1, 0.25, False)
    (example,) = json.loads(json.dumps(agreement.summary()))["examples"]
    assert example == {
        "request_id": "req-9",
        "position": 30,
        "anchor": 77,
        "local": [1, 2, 3, 4],
        "remote": [1, 7, 8, 4],
        "remote_margins": [2.0, 0.25, 0.5, 1.0],
        "first_mismatch": 1,
        "remote_margin": 0.25,
        "near_tie": False,
    }


@pytest.mark.parametrize(("margin", "near"), [(0.0, 1), (1e-3, 1), (1.01e-3, 0), (5.0, 0)])
def test_a_near_tie_is_counted_apart_and_stays_a_mismatch(margin: float, near: int) -> None:
    agreement = Agreement(MAX_POSITIONS)
    theirs = remote([1, 7], margins=[[9.0, margin]])
    assert len(agreement.record(local([1, 2]), [a_request()], theirs)) == 1
    summary = agreement.summary()
    assert (summary["near_ties"], summary["mismatches"]) == (near, 1)
    assert summary["full_block_agree_rate"] == 0.0


def test_a_small_margin_elsewhere_makes_no_near_tie() -> None:
    agreement = Agreement(MAX_POSITIONS)
    agreement.record(local([1, 2]), [a_request()], remote([1, 7], margins=[[0.0, 3.0]]))
    assert agreement.summary()["near_ties"] == 0


def test_who_is_not_eligible_is_counted_under_the_reason() -> None:
    agreement = Agreement(MAX_POSITIONS)
    failed = remote([0, 0], [0, 0], reason="timeout")
    agreement.record(local([1, 2], [1, 2]), [a_request(), a_request()], failed)
    mixed = remote([1, 2], [1, 2], [1, 2], [1, 2], [0, 0])
    mixed.ok[0] = False
    mixed.partial[1] = True
    requests = [
        a_request(),
        a_request(),
        a_request(end=98),  # draft positions 99 and 100, where 99 is the last
        a_request(end=97),  # 98 and 99
        a_request(n_out=0),
    ]
    agreement.record(local(*[[1, 2]] * 5), requests, mixed)
    summary = agreement.summary()
    assert summary["ineligible"] == {
        "round_failed": 2,
        "request_failed": 1,
        "partial_window": 1,
        "last_positions": 1,
    }
    assert set(INELIGIBLE) == set(summary["ineligible"])
    assert summary["eligible"] == 1, "and who wanted no drafts is not counted at all"
    assert summary["eligible_share"] == round(1 / 6, 6)
    assert summary["mismatches"] == 0


def test_a_round_that_could_not_be_begun_counts_all_its_requests_as_failed() -> None:
    agreement = Agreement(MAX_POSITIONS)
    agreement.record(local([1, 2], [1, 2]), (), remote([0, 0], [0, 0], reason="internal_error"))
    assert agreement.summary()["ineligible"] == dict.fromkeys(INELIGIBLE, 0) | {"round_failed": 2}


def test_a_longer_block_of_the_worker_is_compared_as_far_as_the_engine_drafts() -> None:
    agreement = Agreement(MAX_POSITIONS)
    agreement.record(local([1, 2]), [a_request()], remote([1, 2, 9, 9]))
    assert agreement.summary()["first_mismatch_hist"] == [0, 0, 1]


def test_before_the_first_step_there_is_a_summary_too() -> None:
    summary = Agreement(MAX_POSITIONS).summary()
    assert (summary["eligible"], summary["agree_rate_by_position"]) == (0, [])
    assert (summary["eligible_share"], summary["full_block_agree_rate"]) == (0.0, 0.0)


def test_examples_are_the_newest_and_bounded_but_every_mismatch_is_counted() -> None:
    agreement = Agreement(MAX_POSITIONS)
    for number in range(1000):
        name = f"{number}-" + "x" * 1000
        assert agreement.record(local([1]), [a_request(name)], remote([2]))
    summary = agreement.summary()
    assert summary["mismatches"] == 1000
    examples = summary["examples"]
    assert isinstance(examples, list)
    kept = [int(example["request_id"].split("-")[0]) for example in examples]
    assert kept == list(range(1000 - EXAMPLES_MAX, 1000))
    assert all(len(example["request_id"]) == REQUEST_ID_CHARACTERS_MAX for example in examples)


@pytest.mark.parametrize(
    ("ours", "requests", "theirs"),
    [
        (local([1, 2]), 2, remote([1, 2])),
        (local([1, 2], [1, 2]), 2, remote([1, 2])),
        (local([1, 2, 3]), 1, remote([1, 2])),
        (local([]), 1, remote([1, 2])),
    ],
    ids=["more requests", "more local drafts", "a longer local block", "no local position"],
)
def test_what_cannot_be_of_one_step_is_refused(ours: np.ndarray, requests: int, theirs: RoundResult) -> None:
    with pytest.raises(ValueError, match="not of one step"):
        Agreement(MAX_POSITIONS).record(ours, [a_request()] * requests, theirs)


def test_an_engine_cannot_change_how_far_it_drafts() -> None:
    agreement = Agreement(MAX_POSITIONS)
    agreement.record(local([1, 2]), [a_request()], remote([1, 2]))
    with pytest.raises(ValueError, match="after 2 positions before"):
        agreement.record(local([1]), [a_request()], remote([1, 2]))


BLOCK = st.lists(st.integers(0, 2), min_size=3, max_size=3)


@given(pairs=st.lists(st.tuples(BLOCK, BLOCK), min_size=1, max_size=30))
def test_every_block_is_counted_once_and_rates_follow_from_the_definition(
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    agreement = Agreement(MAX_POSITIONS)
    for ours, theirs in pairs:
        agreement.record(local(ours), [a_request()], remote(theirs))
    summary = agreement.summary()
    rates, first_mismatches = summary["agree_rate_by_position"], summary["first_mismatch_hist"]
    assert isinstance(rates, list)
    assert isinstance(first_mismatches, list)
    for position in range(3):
        prefix = [pair for pair in pairs if pair[0][:position] == pair[1][:position]]
        agreed = [pair for pair in prefix if pair[0][position] == pair[1][position]]
        expected = round(len(agreed) / len(prefix), 6) if prefix else 0.0
        assert rates[position] == expected
    assert sum(first_mismatches) == len(pairs)
    assert summary["mismatches"] == sum(ours != theirs for ours, theirs in pairs)
