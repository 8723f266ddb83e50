"""What an engine states in HELLO comes from its own configuration and the files beside it."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ofl.contract.dspark_v1 import RowDtype, RowForm
from ofl.contract.identity import UNSTATED, target_binding
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.facts import engine_facts


def engine(
    folder: Path, *, dtype: str = "torch.bfloat16", drafts: int = 4, tokenizer: str | None = None
) -> Any:
    """An engine configuration as vLLM builds it: a target of 2,000 tokens and 64 hidden units in folder."""
    model = SimpleNamespace(
        dtype=dtype,
        max_model_len=777,
        tokenizer=tokenizer or str(folder),
        get_vocab_size=lambda: 2000,
        get_hidden_size=lambda: 64,
        get_total_num_hidden_layers=lambda: 6,
    )
    hf_config = SimpleNamespace(to_dict=lambda: {"target_layer_ids": [0, 1], "block_size": 8})
    drafter = SimpleNamespace(model=str(folder / "drafter"), hf_config=hf_config)
    speculative = SimpleNamespace(num_speculative_tokens=drafts, draft_model_config=drafter)
    return SimpleNamespace(
        model_config=model, speculative_config=speculative, scheduler_config=SimpleNamespace(max_num_seqs=9)
    )


def drafter_file(folder: Path, **values: object) -> None:
    (folder / "drafter").mkdir(exist_ok=True)
    (folder / "drafter" / "config.json").write_text(json.dumps({"target_layer_ids": [0, 2, 5], **values}))


def test_the_facts_are_the_engines_own(tmp_path: Path) -> None:
    drafter_file(tmp_path, block_size=5)
    facts = engine_facts(engine(tmp_path))
    assert (facts.vocabulary, facts.max_positions, facts.max_slots) == (2000, 777, 9)
    assert (facts.tap_count, facts.row_elements, facts.row_dtype) == (3, 3 * 64, RowDtype.BFLOAT16)
    assert (facts.block_length, facts.window, facts.row_form) == (5, 0, RowForm.RAW)
    assert facts.row_bytes == 3 * 64 * 2


def test_a_drafter_that_is_no_local_folder_is_read_from_what_vllm_resolved(tmp_path: Path) -> None:
    facts = engine_facts(engine(tmp_path))
    assert (facts.tap_count, facts.block_length) == (2, 8)


def test_the_target_binding_covers_sizes_and_tokenizer_file(tmp_path: Path) -> None:
    drafter_file(tmp_path, block_size=5)
    sizes = {"vocabulary": 2000, "hidden_size": 64, "num_hidden_layers": 6}
    assert engine_facts(engine(tmp_path)).target_binding == target_binding(**sizes, tokenizer_sha256=None)
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    digest = hashlib.sha256(b"{}").hexdigest()
    assert engine_facts(engine(tmp_path)).target_binding == target_binding(**sizes, tokenizer_sha256=digest)


def test_a_tokenizer_that_is_no_local_folder_leaves_the_binding_unstated(tmp_path: Path) -> None:
    drafter_file(tmp_path, block_size=5)
    assert engine_facts(engine(tmp_path, tokenizer="owner/model")).target_binding == UNSTATED


def test_more_drafts_than_the_block_has_are_refused(tmp_path: Path) -> None:
    drafter_file(tmp_path, block_size=5)
    assert engine_facts(engine(tmp_path, drafts=5)).block_length == 5
    with pytest.raises(SeamError, match="num_speculative_tokens is 6, more than the drafter's block of 5"):
        engine_facts(engine(tmp_path, drafts=6))


def test_a_dtype_that_no_row_can_have_is_refused(tmp_path: Path) -> None:
    drafter_file(tmp_path, block_size=5)
    with pytest.raises(SeamError, match=r"dtype is torch\.float64"):
        engine_facts(engine(tmp_path, dtype="torch.float64"))


@pytest.mark.parametrize(
    ("ranges", "schedule"),
    [
        (None, ()),
        ([(1, 9, 4)], (0, 4, 4, 4, 4, 4, 4, 4, 4, 4)),
        # Between and after ranges vLLM goes on with what was before, and never verifies more than K.
        ([(1, 2, 9), (5, 6, 2), (8, 8, 0)], (0, 4, 4, 4, 4, 2, 2, 2, 0, 0)),
        ([[4, 90, 1], [1, 3, 3]], (0, 3, 3, 3, 1, 1, 1, 1, 1, 1)),
    ],
)
def test_the_schedule_of_drafts_is_the_schedulers_own(
    tmp_path: Path, ranges: list[tuple[int, int, int]] | None, schedule: tuple[int, ...]
) -> None:
    drafter_file(tmp_path, block_size=5)
    config = engine(tmp_path, drafts=4)
    config.speculative_config.num_speculative_tokens_per_batch_size = ranges
    assert engine_facts(config).draft_schedule == schedule
