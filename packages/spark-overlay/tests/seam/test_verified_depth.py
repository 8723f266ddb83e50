"""A cap bounds what the scheduler is told to verify, or the figures say why it cannot."""

from types import SimpleNamespace
from typing import Any

import pytest
from spark_overlay.vllm_seam.verified_depth import AHEAD, NO_WORD, cap_verification


def runner(drafts: list[list[int]] | None, *, ahead: bool = False) -> Any:
    """A model runner that tells the scheduler these drafts."""
    told = None if drafts is None else SimpleNamespace(req_ids=["a", "b"], draft_token_ids=drafts)
    config = SimpleNamespace(scheduler_config=SimpleNamespace(async_scheduling=ahead))
    return SimpleNamespace(vllm_config=config, take_draft_token_ids=lambda: told)


def drafter(cap: int | None) -> Any:
    return SimpleNamespace(depth_max=cap, depth_note="the engine is not up")


@pytest.mark.parametrize(
    ("cap", "right"),
    [
        (None, [[-1, -1, -1], [5]]),
        (9, [[-1, -1, -1], [5]]),
        (2, [[-1, -1], [5]]),
        (0, [[], []]),
    ],
)
def test_a_cap_bounds_what_the_scheduler_is_told(cap: int | None, right: list[list[int]]) -> None:
    made, asked = runner([[-1, -1, -1], [5]]), drafter(cap)
    cap_verification(made, asked)
    assert made.take_draft_token_ids().draft_token_ids == right
    assert asked.depth_note == ""


def test_a_step_without_drafts_stays_one() -> None:
    made = runner(None)
    cap_verification(made, drafter(1))
    assert made.take_draft_token_ids() is None


def test_an_engine_that_verifies_all_positions_says_why() -> None:
    ahead, asked = runner([[1]], ahead=True), drafter(0)
    cap_verification(ahead, asked)
    assert asked.depth_note == AHEAD
    assert ahead.take_draft_token_ids().draft_token_ids == [[1]]
    silent, asked = runner([[1]]), drafter(0)
    del silent.take_draft_token_ids
    cap_verification(silent, asked)
    assert asked.depth_note == NO_WORD
