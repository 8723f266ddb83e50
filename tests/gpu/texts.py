"""Texts with their taps, and plays: the rounds in which they reach a drafter.

A play is the same whoever is given it, so that two drafters (or a worker behind a wire) can be compared block by
block.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ofl.contract.dspark_v1 import RowDtype, RowForm
from x86_worker.drafters.base import Context, Draft, Drafter, DraftWish

DEMO_PAIR = Path(__file__).parents[2] / "demo" / "pair"
GENERATED_TOKENS = 160
TORCH_ROW_DTYPES = {RowDtype.FLOAT32: torch.float32, RowDtype.BFLOAT16: torch.bfloat16}


@dataclass(frozen=True)
class Text:
    """ids: one more than there are rows, since the last row's anchor follows it.  taps: float32 [rows, elements]."""

    ids: list[int]
    taps: torch.Tensor

    def rows(self, first: int, count: int, dtype: RowDtype) -> memoryview:
        """Bytes of some rows, as an engine would send them."""
        part = self.taps[first : first + count].to(TORCH_ROW_DTYPES[dtype]).contiguous()
        return memoryview(part.view(torch.uint8).numpy().tobytes())


@dataclass(frozen=True)
class Piece:
    """What one text gives in one round: rows first .. first+n_rows-1.  rejected: rows behind them that are
    appended too and taken back before the draft.
    """

    slot: int
    first: int
    n_rows: int
    rejected: int

    @property
    def end(self) -> int:
        """The anchor's position."""
        return self.first + self.n_rows


def plays(lengths: Sequence[int], *, prompt: int, seed: int) -> Iterator[list[Piece]]:
    """Rounds until every text is used up: a prompt's rows first, then 1 to 6 at a time.  Slots join one round apart
    and now and then leave a round out.
    """
    random = np.random.default_rng(seed)
    at = [0] * len(lengths)
    turn = 0
    while any(end < length for end, length in zip(at, lengths, strict=True)):
        pieces = []
        for slot, length in enumerate(lengths):
            if turn < slot or at[slot] == length or (at[slot] and random.random() < 0.2):
                continue
            wanted = int(random.integers(1, 7)) if at[slot] else prompt + slot
            n_rows = min(wanted, length - at[slot])
            behind = length - at[slot] - n_rows
            pieces.append(Piece(slot, at[slot], n_rows, min(behind, int(random.integers(0, 4)))))
            at[slot] += n_rows
        turn += 1
        if pieces:
            yield pieces


def play(
    drafter: Drafter,
    texts: Sequence[Text],
    rounds: Sequence[Sequence[Piece]],
    row_dtype: RowDtype = RowDtype.FLOAT32,
) -> list[Draft]:
    """Every block of the play, drafted in process as the service would: all appends of a round, then one draft."""
    contexts: dict[int, Context] = {}
    blocks: list[Draft] = []
    window = drafter.facts.window
    for pieces in rounds:
        wishes = []
        for piece in pieces:
            text = texts[piece.slot]
            context = contexts.setdefault(piece.slot, drafter.new_context(RowForm.RAW, row_dtype))
            count = piece.n_rows + piece.rejected
            context.append(piece.first, text.rows(piece.first, count, row_dtype), count)
            context.append(piece.end, memoryview(b""), 0)
            if window:
                context.drop_before(max(context.start, context.end - window))
            anchor = text.ids[piece.end]
            wishes.append(DraftWish(context, context.start, anchor, piece.end, drafter.facts.block_length))
        for block in drafter.draft(wishes):
            assert isinstance(block, Draft), block
            blocks.append(block)
    return blocks


def demo_texts() -> list[Text]:
    """The demo pair's own greedy continuations of its four prompts, with its target's taps, in float32 on the CPU."""
    from tokenizers import Tokenizer

    from demo.training.layers import rotations
    from demo.training.settings import Settings
    from demo.training.target import Generator
    from demo.training.weights import load_pair

    settings = Settings()
    target, _ = load_pair(DEMO_PAIR, settings)
    rotation = rotations(settings.context, settings.target.head_dim, "cpu")
    tokenizer = Tokenizer.from_file(str(DEMO_PAIR / "target" / "tokenizer.json"))
    texts = []
    for prompt in prompts():
        start = torch.tensor([tokenizer.encode(prompt).ids])
        ids = Generator(target, rotation).continue_texts(start, GENERATED_TOKENS)
        with torch.no_grad():
            _, taps = target(ids[:, :-1], rotation, settings.drafter.taps)
        assert taps is not None
        texts.append(Text(ids[0].tolist(), taps[0]))
    return texts


def prompts() -> list[str]:
    """The prompts that come with the demo pair."""
    stored: list[str] = json.loads((DEMO_PAIR / "prompts.json").read_text(encoding="utf-8"))["prompts"]
    return stored


def random_texts(count: int, rows: int, elements: int, vocabulary: int, seed: int = 5) -> list[Text]:
    """Texts that mean nothing, of different lengths."""
    random = np.random.default_rng(seed)
    return [
        Text(
            random.integers(0, vocabulary, rows + 7 * index + 1).tolist(),
            torch.from_numpy(random.standard_normal((rows + 7 * index, elements)).astype(np.float32)),
        )
        for index in range(count)
    ]
