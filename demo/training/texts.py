"""What the drafter learns on: the target's own texts and a share of corpus text.

Owns prompt choice, sampling temperatures and the anchors' weights.  Must draw prompts from training text only.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from demo.training.layers import Rotation
from demo.training.optim import mixed_precision
from demo.training.repeats import repeated
from demo.training.settings import BLOCK_TOKENS, Settings
from demo.training.target import Generator, Target

_ANCHOR_FIRST = 4  # an anchor needs a little context


class CorpusRows:
    """Random rows of the training tokens, kept on the device."""

    def __init__(self, tokens: npt.NDArray[np.uint16], random: np.random.Generator, device: str) -> None:
        self._tokens = torch.from_numpy(tokens.astype(np.int32)).to(device)
        self._random, self._device = random, device

    def draw(self, rows: int, length: int) -> Tensor:
        """int64 [rows, length], each from a random start."""
        starts = torch.from_numpy(self._random.integers(0, len(self._tokens) - length, rows))
        return self._tokens[
            starts.to(self._device)[:, None] + torch.arange(length, device=self._device)
        ].long()


@dataclass(frozen=True)
class OwnTexts:
    """texts int64 [rows, positions] by the target, prompts included; repeats bool, as `repeated` says."""

    texts: Tensor
    repeats: Tensor


def own_texts(
    target: Target,
    rotation: Rotation,
    corpus: CorpusRows,
    settings: Settings,
    random: np.random.Generator,
    device: str,
) -> OwnTexts:
    """Continue random training prompts, three of four greedily, to rows of context + 1 tokens."""
    noise = torch.Generator(device=device).manual_seed(settings.seed + 1)
    temperatures = torch.tensor(settings.text_temperatures, device=device)
    generator = Generator(target, rotation)
    batches: list[Tensor] = []
    made = 0
    while made < settings.text_rows:
        rows = min(settings.text_batch, settings.text_rows - made)
        prompt = int(random.integers(settings.text_prompt_tokens[0], settings.text_prompt_tokens[1] + 1))
        own = temperatures.repeat(rows // len(temperatures) + 1)[:rows]
        with mixed_precision(device):
            batches.append(
                generator.continue_texts(corpus.draw(rows, prompt), settings.context + 1 - prompt, own, noise)
            )
        made += rows
    texts = torch.cat(batches)
    return OwnTexts(texts, torch.from_numpy(repeated(texts.cpu().numpy())).to(device))


class DrafterBatches:
    """Rows and anchors for the drafter: mostly the target's own texts, a share of corpus text."""

    def __init__(
        self, own: OwnTexts, corpus: CorpusRows, settings: Settings, random: np.random.Generator
    ) -> None:
        self._own, self._corpus, self._settings, self._random = own, corpus, settings, random
        self._device = own.texts.device
        self._noise = torch.Generator(device=self._device).manual_seed(settings.seed + 2)

    def draw(self) -> tuple[Tensor, Tensor]:
        """ids int64 [rows, context + 1] and anchors int64 [rows, anchors], distinct within a row.

        Anchors in repeated text are rarer: loops are easy to draft and would fill the batch.
        """
        settings = self._settings
        rows, context = settings.drafter_fit.rows, settings.context
        own_rows = rows - round(rows * settings.corpus_share)
        chosen = torch.from_numpy(self._random.integers(0, len(self._own.texts), own_rows)).to(self._device)
        ids = torch.cat([self._own.texts[chosen], self._corpus.draw(rows - own_rows, context + 1)])
        weights = torch.ones(rows, context - BLOCK_TOKENS, device=self._device)
        again = self._own.repeats[chosen, : context - BLOCK_TOKENS]
        weights[:own_rows][again] = settings.repeat_anchor_weight
        weights[:, :_ANCHOR_FIRST] = 0
        return ids, torch.multinomial(weights, settings.anchors, generator=self._noise)
