"""The reference drafter as the service sees it: `base.Drafter` over contexts and blocks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from ofl.contract.dspark_v1 import RowDtype, RowForm

from x86_worker.checkpoint import CheckpointError, DrafterCheckpoint, identity_of, read_drafter
from x86_worker.drafters.base import ContextMisuseError, Draft, DrafterFacts, DraftFailure, DraftWish
from x86_worker.drafters.reference.block import BlockRequest, BlockResult, draft_block
from x86_worker.drafters.reference.context import ROW_DTYPES, ReferenceContext
from x86_worker.drafters.reference.weights import load_weights

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What it computes in.  float16 checkpoints are read and computed in float32."""
WARM_UP_BATCH = 4
"""Requests in the largest round of the warm-up: other batches use other kernels."""


def load_reference_drafter(
    drafter: Path,
    target: Path,
    *,
    dtype: str | None = None,
    device: str = "cpu",
    block_length: int | None = None,
) -> "ReferenceDrafter":
    """Reads a drafter's and its target's folder, digests them, copies the weights to the device and warms up.

    dtype: float32 or bfloat16; None takes the checkpoint's.  block_length: draft positions N, where the
    engine runs another number than the checkpoint states (attention over the block may depend on
    it).  Raises CheckpointError.
    """
    checkpoint = read_drafter(drafter, target)
    if block_length is not None:
        checkpoint = replace(checkpoint, config=replace(checkpoint.config, block_length=block_length))
    loaded = ReferenceDrafter(checkpoint, dtype=dtype, device=device)
    loaded.warm_up()
    return loaded


class ReferenceDrafter:
    """Implements `base.Drafter`.  One thread uses it and all its contexts.

    Making one turns reduced float32 products (TF32) off in this process.
    """

    def __init__(
        self, checkpoint: DrafterCheckpoint, *, dtype: str | None = None, device: str = "cpu"
    ) -> None:
        config = checkpoint.config
        name = dtype or (config.dtype if config.dtype in DTYPES else "float32")
        if name not in DTYPES:
            raise CheckpointError(f"dtype {name!r} is none of {', '.join(DTYPES)}")
        self._config = config
        self._dtype = name
        # Attention and the confidence head are float32 in either dtype.  TF32, or bfloat16 products on CPUs, would
        # be neither what is documented nor an oracle, whatever this process had allowed before.
        torch.set_float32_matmul_precision("highest")
        self._weights = load_weights(checkpoint, DTYPES[name], torch.device(device))
        record = identity_of(checkpoint)
        row_bytes = (
            2 * len(config.layers) * config.num_key_value_heads * config.head_dim * DTYPES[name].itemsize
        )
        self._facts = DrafterFacts(
            identity=record.identity,
            markov_identity=record.markov_identity,
            target_binding=record.target_binding,
            vocabulary=record.vocabulary,
            row_elements={
                RowForm.RAW: record.row_elements_raw,
                RowForm.PROJECTED: record.row_elements_projected,
            },
            row_dtypes=frozenset(ROW_DTYPES),
            window=config.window,
            max_positions=config.max_position_embeddings,
            block_length=config.block_length,
            tap_count=len(config.target_layer_ids),
            context_row_bytes=row_bytes,
            has_confidence=checkpoint.has_confidence,
            fake=False,
        )

    @property
    def facts(self) -> DrafterFacts:
        """What it is."""
        return self._facts

    def new_context(self, row_form: RowForm, row_dtype: RowDtype) -> ReferenceContext:
        """An empty context that takes rows of that form and type."""
        return ReferenceContext(self._config, self._weights, row_form, row_dtype)

    def draft(self, wishes: Sequence[DraftWish]) -> list[Draft | DraftFailure]:
        """A result per wish, in order; all requests share one pass through the dense layers."""
        if not wishes:
            return []
        requests = [self._request(wish) for wish in wishes]
        result = draft_block(self._config, self._weights, requests, max(wish.n_out for wish in wishes))
        return [_outcome(result, index, wish.n_out) for index, wish in enumerate(wishes)]

    def warm_up(self) -> None:
        """Draft for nobody.

        The first use of a GPU's kernels loads them, which takes longer than an engine waits for a round.
        """
        config = self._config
        for row_dtype in ROW_DTYPES:
            contexts = [self.new_context(RowForm.RAW, row_dtype) for _ in range(WARM_UP_BATCH)]
            for n_rows, context in enumerate(contexts, start=1):
                context.append(
                    0, memoryview(bytes(n_rows * config.row_elements * row_dtype.itemsize)), n_rows
                )
            wishes = [DraftWish(context, 0, 0, context.end, config.block_length) for context in contexts]
            for batch in range(1, WARM_UP_BATCH + 1):
                self.draft(wishes[:batch])

    def describe(self) -> dict[str, object]:
        """What STATS shows."""
        return {
            "kind": "reference",
            "family": "qwen3-dspark",
            "device": str(self._weights.norm.device),
            "dtype": self._dtype,
            "threads": torch.get_num_threads(),
            "layers": len(self._config.layers),
            "queries_per_block": self._config.queries_per_block,
        }

    def _request(self, wish: DraftWish) -> BlockRequest:
        context = wish.context
        if not isinstance(context, ReferenceContext):
            raise ContextMisuseError("the context is of another drafter")
        if wish.anchor_position != context.end:
            raise ContextMisuseError(
                f"the anchor is at {wish.anchor_position}, the context ends at {context.end}"
            )
        if not context.start <= wish.window_start <= context.end:
            held = f"{context.start} .. {context.end}"
            raise ContextMisuseError(f"window_start {wish.window_start} lies outside the context of {held}")
        if not 1 <= wish.n_out <= self._config.block_length:
            raise ContextMisuseError(f"n_out {wish.n_out} is not 1 .. {self._config.block_length}")
        if not 0 <= wish.anchor < self._facts.vocabulary:
            raise ContextMisuseError(f"anchor {wish.anchor} lies outside the vocabulary")
        return BlockRequest(context, wish.window_start, wish.anchor)


def _outcome(result: BlockResult, index: int, n_out: int) -> Draft | DraftFailure:
    if not bool(result.finite[index]):
        return DraftFailure("its context rows lead to numbers that are not finite")
    return Draft(
        drafts=tuple(result.ids[index, :n_out].tolist()),
        confidences=tuple(result.confidences[index, :n_out].tolist()),
        margins=tuple(result.margins[index, :n_out].tolist()),
    )
