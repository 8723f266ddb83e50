"""What the demo pair is trained with is what it is run with: masks, caches, and the shipped weights' names."""

from pathlib import Path

import pytest
import torch

from demo.training.acceptance import accepted_everywhere, rounds_of
from demo.training.counting import Round
from demo.training.drafter import Drafter, visible_keys
from demo.training.layers import rotations
from demo.training.settings import BLOCK_TOKENS, Settings
from demo.training.target import Generator, Target
from demo.training.weights import load_pair

pytestmark = pytest.mark.engine

SETTINGS = Settings()
PAIR = Path(__file__).parents[2] / "demo" / "pair"
ROTATION = rotations(300, SETTINGS.target.head_dim, "cpu")


@pytest.fixture(scope="module")
def pair() -> tuple[Target, Drafter]:
    return load_pair(PAIR, SETTINGS)


@pytest.fixture
def target(pair: tuple[Target, Drafter]) -> Target:
    return pair[0]


@pytest.fixture
def drafter(pair: tuple[Target, Drafter]) -> Drafter:
    return pair[1]


def text(tokens: int) -> torch.Tensor:
    """One seeded row of ordinary token ids."""
    return torch.randint(2, SETTINGS.target.vocab, (1, tokens), generator=torch.Generator().manual_seed(1))


def test_a_query_sees_its_window_before_the_anchor_and_its_own_block_so_far() -> None:
    mask = visible_keys(torch.tensor([[6, 9]]), positions=10, window_tokens=4)[0, 0]
    assert mask.shape == (2 * BLOCK_TOKENS, 10 + 2 * BLOCK_TOKENS)
    # By hand, for the anchor at 6 and a window of 4: query 6 + k sees keys 3 + k .. 6 + k; keys 0 .. 5 are
    # context, keys from 6 on are the block's own (columns 10 .. 14).
    seen = [torch.nonzero(row).flatten().tolist() for row in mask]
    assert seen[:BLOCK_TOKENS] == [
        [3, 4, 5, 10],
        [4, 5, 10, 11],
        [5, 10, 11, 12],
        [10, 11, 12, 13],
        [11, 12, 13, 14],
    ]
    assert seen[BLOCK_TOKENS] == [6, 7, 8, 15]
    assert seen[-1] == [16, 17, 18, 19]


def test_drafts_do_not_depend_on_rows_at_the_anchor_or_before_the_window(
    target: Target, drafter: Drafter
) -> None:
    ids, anchor = text(200), 180
    _, taps = target(ids, ROTATION, drafter.shape.taps)
    changed = taps.clone()
    changed[:, anchor:] = 7.0
    changed[:, : anchor - SETTINGS.drafter.window_tokens + 1] = -7.0
    anchors = torch.tensor([[anchor]])
    expected, _ = drafter(target.table, taps, ids, anchors, ROTATION)
    found, _ = drafter(target.table, changed, ids, anchors, ROTATION)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    changed[:, anchor - SETTINGS.drafter.window_tokens + 1] = -7.0  # the oldest row that the first query sees
    found, _ = drafter(target.table, changed, ids, anchors, ROTATION)
    assert not torch.equal(found, expected)


def test_anchors_of_one_row_do_not_see_each_other(target: Target, drafter: Drafter) -> None:
    ids = text(64)
    _, taps = target(ids, ROTATION, drafter.shape.taps)
    together, _ = drafter(target.table, taps, ids, torch.tensor([[20, 22, 50]]), ROTATION)
    alone, _ = drafter(target.table, taps, ids, torch.tensor([[22]]), ROTATION)
    torch.testing.assert_close(together[:, 1:2], alone, rtol=1e-4, atol=1e-4)


def test_cached_generation_chooses_what_the_full_forward_pass_chooses(target: Target) -> None:
    texts = Generator(target, ROTATION).continue_texts(text(12), 20)
    logits, _ = target(texts, ROTATION)
    assert texts[0, 12:].tolist() == logits[0, 11:-1].argmax(-1).tolist()


def test_the_shipped_pair_accepts_two_drafts_a_round_on_a_plain_prompt(
    target: Target, drafter: Drafter
) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    prompt = "import os\nimport sys\n\n\nclass Reader:\n    def __init__(self, path):\n"
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    first = ids.shape[1]
    texts = Generator(target, ROTATION).continue_texts(ids, 160)
    accepted, confidence = accepted_everywhere(drafter, target, ROTATION, texts, first)
    rounds = rounds_of(accepted, first)
    assert sum(item.accepted for item in rounds) / len(rounds) >= 2.0
    assert ((confidence > 0) & (confidence < 1)).all()


def test_rounds_follow_the_accepted_tokens() -> None:
    # Anchors 10, 11, ..: the first round accepts 2, so the next anchor is 13, which accepts 0, then 14.
    assert rounds_of(torch.tensor([[2, 5, 5, 0, 1, 4]]), 10) == [
        Round(0, 10, 2),
        Round(0, 13, 0),
        Round(0, 14, 1),
    ]
