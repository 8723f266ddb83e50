"""Every number the training depends on, in one place; `record.json` repeats them for the pair that is shipped.

Owns shapes, step counts, seeds and learning rates.  Must never read the environment: two runs with equal
settings do the same work.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

END_ID = 0  # <|endoftext|>, before each file of the corpus
MASK_ID = 1  # <|mask|>, fills the drafter's block behind the anchor; never occurs in text
BLOCK_TOKENS = 5  # draft tokens a round, and queries a block
RMS_EPS = 1e-6
ROPE_THETA = 10_000.0
REPEAT_WINDOW_TOKENS = 8  # a position repeats when the window ending there occurred before in its text


@dataclass(frozen=True)
class TargetShape:
    """A Qwen3 decoder with tied embeddings.  Sizes in elements; about 2.5 million parameters."""

    vocab: int = 512
    hidden: int = 192
    layers: int = 6
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    mlp: int = 512


@dataclass(frozen=True)
class DrafterShape:
    """A Qwen3-DSpark drafter with sliding, causal layers that shares the target's embedding and head.

    taps: target layers whose outputs it reads; window_tokens: keys a query sees, itself included.
    """

    layers: int = 3
    mlp: int = 512
    markov_rank: int = 128
    taps: tuple[int, ...] = (1, 3, 5)
    window_tokens: int = 128


@dataclass(frozen=True)
class Fit:
    """One run of the optimizer.  rates: Muon's for matrices, Adam's for the rest; decay is decoupled."""

    steps: int
    rows: int
    muon_rate: float = 0.02
    adam_rate: float = 4e-3
    decay: float = 0.1


@dataclass(frozen=True)
class Settings:
    """The whole recipe.  context: positions a row holds; *_rows: texts in a batch or a set."""

    seed: int = 0
    context: int = 1024
    target: TargetShape = field(default_factory=TargetShape)
    drafter: DrafterShape = field(default_factory=DrafterShape)
    target_fit: Fit = field(default_factory=lambda: Fit(steps=4000, rows=32))
    # The drafter learns from the target's own texts (on-policy) and a share of corpus text.
    text_rows: int = 6144
    text_batch: int = 2048
    text_prompt_tokens: tuple[int, int] = (16, 512)
    text_temperatures: tuple[float, ...] = (0.0, 0.0, 0.0, 0.7)
    corpus_share: float = 0.25
    drafter_fit: Fit = field(default_factory=lambda: Fit(steps=6500, rows=32, adam_rate=3e-3))
    anchors: int = 96
    repeat_anchor_weight: float = 0.25  # how often an anchor inside repeated text is drawn, against 1
    position_decay: float = 4.0  # draft position k weighs exp(-k / position_decay)
    variation_weight: float = 0.5
    # Held-out measurement.
    eval_rows: int = 128
    eval_prompt_tokens: int = 64
    eval_new_tokens: int = 128
    confidence_rows: int = 192
    confidence_new_tokens: int = 160

    def as_record(self) -> dict[str, Any]:
        """The settings as plain values for `record.json`."""
        return asdict(self)

    def scaled(self, scale: float) -> "Settings":
        """The same recipe with `scale` times the steps and texts, in batches of 4: a rehearsal, not a pair."""

        def some(count: int, least: int) -> int:
            return max(least, round(count * scale))

        return replace(
            self,
            target_fit=replace(self.target_fit, steps=some(self.target_fit.steps, 8), rows=4),
            drafter_fit=replace(self.drafter_fit, steps=some(self.drafter_fit.steps, 8), rows=4),
            text_rows=some(self.text_rows, 8),
            text_batch=some(self.text_batch, 8),
            eval_rows=some(self.eval_rows, 4),
            confidence_rows=some(self.confidence_rows, 4),
        )
