"""What an engine states about itself in HELLO, read from its configuration.

Pure: reads attributes of vLLM's configuration objects and files of the model's folder; imports nothing of
either.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ofl.contract.dspark_v1 import RowDtype
from ofl.contract.identity import UNSTATED, target_binding

from spark_overlay.interface import EngineFacts
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.shape import drafter_shape, read_drafter_config

TOKENIZER_NAME = "tokenizer.json"
ROW_DTYPES = {
    "torch.float32": RowDtype.FLOAT32,
    "torch.bfloat16": RowDtype.BFLOAT16,
    "torch.float16": RowDtype.FLOAT16,
}


def engine_facts(config: Any) -> EngineFacts:
    """The facts of an engine.  config: a VllmConfig that `refusals` has passed.

    Raises SeamError naming the setting that cannot be served.
    """
    model, speculative = config.model_config, config.speculative_config
    drafter = read_drafter_config(Path(speculative.draft_model_config.model))
    shape = drafter_shape(drafter or speculative.draft_model_config.hf_config.to_dict())
    drafts = speculative.num_speculative_tokens
    if drafts > shape.block_length:
        raise SeamError(
            f"num_speculative_tokens is {drafts}, more than the drafter's block of {shape.block_length}"
        )
    dtype = ROW_DTYPES.get(str(model.dtype))
    if dtype is None:
        raise SeamError(f"dtype is {model.dtype}: context rows are float32, bfloat16 or float16")
    return EngineFacts(
        vocabulary=model.get_vocab_size(),
        row_elements=shape.tap_count * model.get_hidden_size(),
        row_dtype=dtype,
        tap_count=shape.tap_count,
        window=shape.window,
        max_positions=model.max_model_len,
        block_length=shape.block_length,
        max_slots=config.scheduler_config.max_num_seqs,
        target_binding=binding(model),
        draft_schedule=draft_schedule(
            getattr(speculative, "num_speculative_tokens_per_batch_size", None),
            config.scheduler_config.max_num_seqs,
            drafts,
        ),
    )


def draft_schedule(ranges: Iterable[Sequence[int]] | None, max_requests: int, drafts: int) -> tuple[int, ...]:
    """Drafts that vLLM verifies at most, by number of running requests 0 .. max_requests; empty without ranges.

    ranges: (first, last, drafts) as vLLM takes and checks them.  As in its scheduler, what lies between or after
    ranges is as before it.
    """
    if not ranges:
        return ()
    found = [0] * (max_requests + 1)
    for first, _, count in sorted(tuple(entry) for entry in ranges):
        found[first:] = [min(drafts, count)] * len(found[first:])
    return tuple(found)


def binding(model: Any) -> bytes:
    """The target binding where the tokenizer is a local folder, else unstated: nothing is fetched."""
    folder = Path(str(model.tokenizer))
    if not folder.is_dir():
        return UNSTATED
    tokenizer = folder / TOKENIZER_NAME
    return target_binding(
        vocabulary=model.get_vocab_size(),
        hidden_size=model.get_hidden_size(),
        num_hidden_layers=model.get_total_num_hidden_layers(),
        tokenizer_sha256=hashlib.sha256(tokenizer.read_bytes()).hexdigest() if tokenizer.is_file() else None,
    )
