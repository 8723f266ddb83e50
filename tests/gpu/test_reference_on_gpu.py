"""The reference drafter on a GPU drafts what it drafts on the CPU in float32.

The CPU's float32 is compared with vLLM and with the formulas elsewhere; here it is the standard.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from agreement import Agreement, compare
from reference.tiny_checkpoints import HIDDEN, KINDS, TAPS, VOCABULARY, make_pair
from texts import DEMO_PAIR, Piece, Text, demo_texts, play, plays, random_texts
from x86_worker.drafters.base import Draft
from x86_worker.drafters.reference import load_reference_drafter

pytestmark = pytest.mark.gpu

CONFIDENCE_MAX, MARGIN_MAX = 1e-3, 1e-3
"""float32 against float32, sums in another order; logits are of size 10 to 20."""
BFLOAT16_SHARE_MIN = 0.9

Say = Callable[[str, Agreement], None]


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Say:
    """Prints a comparison and leaves it in the report."""

    def write(name: str, found: Agreement) -> None:
        print(f"{name}: {found}", *found.ties, *found.differences, sep="\n  ")
        record_property(name, str(found))

    return write


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    return demo_texts()


@pytest.fixture(scope="module")
def rounds(texts: list[Text]) -> list[list[Piece]]:
    return list(plays([len(text.taps) for text in texts], prompt=40, seed=1))


@pytest.fixture(scope="module")
def expected(texts: list[Text], rounds: list[list[Piece]]) -> list[Draft]:
    """The demo pair's blocks by the CPU in float32."""
    return demo_blocks(texts, rounds, "cpu", "float32")


@pytest.fixture
def restored_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def demo_blocks(texts: list[Text], rounds: list[list[Piece]], device: object, dtype: str) -> list[Draft]:
    drafter = load_reference_drafter(
        DEMO_PAIR / "drafter", DEMO_PAIR / "target", dtype=dtype, device=str(device)
    )
    return play(drafter, texts, rounds)


def assert_same(found: Agreement) -> None:
    """Equal up to ties, and really compared."""
    assert found.differences == []
    assert len(found.ties) <= found.blocks / 100
    assert found.confidence <= CONFIDENCE_MAX
    assert found.margin <= MARGIN_MAX


@pytest.mark.parametrize("name", list(KINDS))
def test_every_kind_of_drafter_drafts_in_float32_what_the_cpu_drafts(
    device: torch.device, name: str, tmp_path: Path, say: Say
) -> None:
    """Several slots in chunks, with rows taken back, around and beyond a window of 24."""
    folders = make_pair(tmp_path, KINDS[name], seed=7)
    texts = random_texts(3, 60, HIDDEN * len(TAPS), VOCABULARY)
    rounds = list(plays([len(text.taps) for text in texts], prompt=11, seed=2))
    there = play(load_reference_drafter(*folders, dtype="float32", device=str(device)), texts, rounds)
    here = play(load_reference_drafter(*folders, dtype="float32"), texts, rounds)
    found = compare(there, here)
    say(f"{name} float32", found)
    assert found.blocks > 30
    assert_same(found)


def test_the_demo_pair_drafts_in_float32_what_the_cpu_drafts(
    device: torch.device, texts: list[Text], rounds: list[list[Piece]], expected: list[Draft], say: Say
) -> None:
    found = compare(demo_blocks(texts, rounds, device, "float32"), expected)
    say("demo pair float32", found)
    assert found.blocks > 200
    assert_same(found)


def test_the_demo_pair_in_bfloat16_agrees_with_float32_on_nine_positions_of_ten(
    device: torch.device, texts: list[Text], rounds: list[list[Piece]], expected: list[Draft], say: Say
) -> None:
    found = compare(demo_blocks(texts, rounds, device, "bfloat16"), expected)
    say("demo pair bfloat16, CPU float32", found)
    say(
        "CPU bfloat16, CPU float32",
        compare(demo_blocks(texts, rounds, "cpu", "bfloat16"), expected),
    )
    assert found.share >= BFLOAT16_SHARE_MIN


def test_drafts_are_of_float32_where_the_process_had_allowed_less(
    device: torch.device,
    texts: list[Text],
    rounds: list[list[Piece]],
    expected: list[Draft],
    restored_precision: None,
    say: Say,
) -> None:
    torch.set_float32_matmul_precision("high")
    found = compare(demo_blocks(texts, rounds, device, "float32"), expected)
    say("demo pair float32 after TF32 was allowed", found)
    assert_same(found)


def test_the_comparison_notices_tf32(
    device: torch.device,
    texts: list[Text],
    rounds: list[list[Piece]],
    expected: list[Draft],
    restored_precision: None,
    say: Say,
) -> None:
    if device.type != "cuda":
        pytest.skip("TF32 is a GPU's")
    drafter = load_reference_drafter(
        DEMO_PAIR / "drafter", DEMO_PAIR / "target", dtype="float32", device=str(device)
    )
    torch.set_float32_matmul_precision("high")
    found = compare(play(drafter, texts, rounds), expected)
    say("demo pair with TF32", found)
    assert found.margin > MARGIN_MAX
