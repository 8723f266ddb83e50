"""The words of a round on a GPU: no word is overwritten on the host before it has reached the device, and only who
asks for that waits.
"""

import numpy as np
import pytest
import torch
from spark_overlay.decision import DecisionLayout
from spark_overlay.round.messages import Outcome, RoundResult
from spark_overlay.vllm_seam.words import Words

pytestmark = pytest.mark.gpu

REQUESTS, DRAFTS = 6, 5
SPIN_CYCLES = 100_000_000
"""A twentieth of a second on a GPU of 2 GHz."""


def result(seed: int) -> RoundResult:
    """A round that went well, with drafts of its own."""
    random = np.random.default_rng(seed)
    shape = (REQUESTS, DRAFTS)
    none = np.zeros(REQUESTS, bool)
    confidences, margins = (random.random(shape, np.float32) for _ in range(2))
    return RoundResult(
        random.integers(1, 1 << 30, shape).astype(np.int32),
        confidences,
        margins,
        none,
        none,
        np.full(REQUESTS, Outcome.OK, np.int32),
        "",
    )


def spin(device: torch.device) -> torch.Event | None:
    """A long kernel, where the device is a GPU; the event of its end."""
    if device.type == "cpu":
        return None
    event = torch.Event(device)
    torch.cuda._sleep(SPIN_CYCLES)
    event.record()
    return event


def test_each_rounds_words_reach_the_device_although_the_next_are_written_at_once(
    device: torch.device,
) -> None:
    """As in an engine that runs ahead of its device: upload, use, and the next round's words, with the device
    busy all the while.
    """
    words = Words(DecisionLayout(REQUESTS, DRAFTS), device)
    rounds = [result(seed) for seed in range(6)]
    used = []
    for number, expected in enumerate(rounds):
        busy = spin(device)
        words.failed(REQUESTS, must_raise=False)
        words.fill(number, expected, must_raise=False)
        words.upload()
        if busy is not None:
            assert not busy.query(), "the upload waited, or the kernel was too short to prove anything"
        used.append(words.drafts[:REQUESTS].clone())
    for drafts, expected in zip(used, rounds, strict=True):
        np.testing.assert_array_equal(drafts.cpu().numpy(), expected.drafts)


def test_what_is_read_back_is_what_the_device_holds(device: torch.device) -> None:
    words, expected = Words(DecisionLayout(REQUESTS, DRAFTS), device), result(9)
    spin(device)
    words.failed(REQUESTS, must_raise=True)
    words.fill(7, expected, must_raise=True)
    words.upload()
    read = words.read()
    assert (read.round, read.must_raise, read.reason) == (7, True, "")
    np.testing.assert_array_equal(read.drafts, expected.drafts)
    np.testing.assert_array_equal(read.confidences, expected.confidences)
    assert words._host.is_pinned() == (device.type == "cuda")
