"""The reference drafter computes Qwen3-DSpark's formulas, compared with a float64 version that shares no
code with it.

Tolerances are for float32 against float64 on logits of size 10: 1e-3 on margins, 1e-4 on confidences; ids
must be equal wherever the margin is above TIE_MARGIN_MAX.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ofl.contract.dspark_v1 import RowDtype, RowForm
from reference.formulas import Block, Formulas
from reference.replay import TIE_MARGIN_MAX
from reference.tiny_checkpoints import BLOCK, HIDDEN, KINDS, TAPS, Kind, make_pair
from x86_worker.checkpoint import read_drafter
from x86_worker.drafters.base import ContextMisuseError, Draft, DraftFailure, DraftWish
from x86_worker.drafters.reference import ReferenceDrafter, load_reference_drafter
from x86_worker.drafters.reference.block import BlockResult, draft_block
from x86_worker.drafters.reference.context import ReferenceContext

pytestmark = pytest.mark.engine

ROWS = 40
WINDOW = 24
RULES: dict[str, tuple[list[int | None], list[bool]]] = {
    "full": ([None] * 3, [False] * 3),
    "sliding": ([WINDOW] * 3, [True] * 3),
    "mixed": ([WINDOW, None, WINDOW], [True, False, True]),
    "sliding-not-causal": ([WINDOW] * 3, [False] * 3),
    "fill-in": ([None, WINDOW, WINDOW], [False, True, True]),
    "full-causal-tied": ([None] * 3, [True] * 3),
}
"""Windows and causality of each kind's layers, by hand from vLLM's rules."""


@dataclass(frozen=True)
class Pair:
    """A kind's drafter and its formulas, with random taps of ROWS positions."""

    drafter: ReferenceDrafter
    formulas: Formulas
    taps: np.ndarray
    folders: tuple[Path, Path]

    def context(self, rows: int = ROWS, first: int = 0) -> ReferenceContext:
        """A context that holds taps first .. rows-1."""
        context = self.drafter.new_context(RowForm.RAW, RowDtype.FLOAT32)
        append(context, first, self.taps[first:rows])
        return context

    def expected(self, anchor: int, end: int, first: int = 0) -> Block:
        """The formulas' block after rows first .. end-1."""
        return self.formulas.block({p: self.taps[p] for p in range(first, end)}, anchor, end)


def append(context: ReferenceContext, first: int, rows: np.ndarray) -> None:
    context.append(first, memoryview(rows.tobytes()), len(rows))


def wish(
    context: ReferenceContext, anchor: int, n_out: int = BLOCK, window_start: int | None = None
) -> DraftWish:
    start = context.start if window_start is None else window_start
    return DraftWish(context, start, anchor, context.end, n_out)


def draft(pair: Pair, context: ReferenceContext, anchor: int, **more: Any) -> Draft:
    (result,) = pair.drafter.draft([wish(context, anchor, **more)])
    assert isinstance(result, Draft), result
    return result


def assert_is(result: Draft, expected: Block) -> None:
    """ids up to a tie, confidences and margins within the tolerances."""
    for k, given in enumerate(result.drafts):
        assert result.margins[k] == pytest.approx(expected.margins[k], abs=1e-3)
        assert result.confidences[k] == pytest.approx(expected.confidences[k], abs=1e-4)
        if expected.margins[k] < TIE_MARGIN_MAX:
            return
        assert given == expected.ids[k]


@pytest.fixture(scope="module", params=list(RULES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make(request.param, KINDS[request.param], tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make("mixed", KINDS["mixed"], tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def sliding(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make("sliding", KINDS["sliding"], tmp_path_factory.mktemp("sliding"))


def make(rules: str, kind: Kind, folder: Path) -> Pair:
    drafter, target = make_pair(folder, kind, seed=7)
    windows, causal = RULES[rules]
    taps = np.random.default_rng(3).standard_normal((ROWS, HIDDEN * len(TAPS))).astype(np.float32)
    formulas = Formulas(drafter, target, windows, causal, BLOCK)
    return Pair(load_reference_drafter(drafter, target), formulas, taps, (drafter, target))


@pytest.mark.parametrize("end", [1, 2, WINDOW - 1, WINDOW, WINDOW + 1, ROWS])
def test_a_block_is_what_the_formulas_say_at_every_window_edge(pair: Pair, end: int) -> None:
    assert_is(draft(pair, pair.context(end), anchor=17 + end), pair.expected(17 + end, end))


def test_rows_in_chunks_give_the_block_of_rows_at_once(pair: Pair) -> None:
    context = pair.drafter.new_context(RowForm.RAW, RowDtype.FLOAT32)
    for first, end in ((0, 1), (1, 14), (14, 14), (14, 37), (37, ROWS)):
        append(context, first, pair.taps[first:end])
    assert_is(draft(pair, context, 9), pair.expected(9, ROWS))


def test_rows_are_truncated_at_the_first_position_of_an_append(pair: Pair) -> None:
    context = pair.context(30)
    append(context, 22, pair.taps[:9])  # rows of other positions: a rejected continuation
    append(context, 22, pair.taps[22:25])
    assert (context.start, context.end) == (0, 25)
    assert_is(draft(pair, context, 5), pair.expected(5, 25))
    append(context, 20, pair.taps[:0])
    assert_is(draft(pair, context, 6), pair.expected(6, 20))


def test_a_partial_window_leaves_the_missing_rows_out_at_absolute_positions(pair: Pair) -> None:
    held = pair.context(ROWS, first=33)
    assert_is(draft(pair, held, 8), pair.expected(8, ROWS, first=33))
    hidden = pair.context(ROWS)
    assert_is(draft(pair, hidden, 8, window_start=33), pair.expected(8, ROWS, first=33))


def test_requests_drafted_together_get_the_blocks_they_get_alone(pair: Pair) -> None:
    contexts = [pair.context(end) for end in (1, 40, 23, 31)]
    wishes = [wish(context, 30 + index, n_out=1 + index) for index, context in enumerate(contexts)]
    for index, together in enumerate(pair.drafter.draft(wishes)):
        (alone,) = pair.drafter.draft([wishes[index]])
        assert isinstance(together, Draft)
        assert isinstance(alone, Draft)
        assert together.drafts == alone.drafts
        assert together.confidences == pytest.approx(alone.confidences, abs=1e-6)
        assert together.margins == pytest.approx(alone.margins, abs=1e-4)


@pytest.mark.parametrize("n_out", [1, 3])
def test_fewer_positions_are_the_first_of_the_whole_block(pair: Pair, n_out: int) -> None:
    context = pair.context()
    whole, some = draft(pair, context, 4), draft(pair, context, 4, n_out=n_out)
    assert len(some.drafts) == n_out
    assert some.drafts == whole.drafts[:n_out]
    assert some.confidences == pytest.approx(whole.confidences[:n_out], abs=1e-6)
    assert some.margins == pytest.approx(whole.margins[:n_out], abs=1e-4)


def test_float32_is_float32_where_the_process_had_allowed_less(tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        pair = make("mixed", KINDS["mixed"], tmp_path)
        assert torch.get_float32_matmul_precision() == "highest"
        assert_is(draft(pair, pair.context(), 11), pair.expected(11, ROWS))
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_drafter_has_drafted_every_small_batch_before_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = set()

    def watched(config: Any, weights: Any, requests: Any, positions: int) -> BlockResult:
        batches.add(len(requests))
        return draft_block(config, weights, requests, positions)

    monkeypatch.setattr("x86_worker.drafters.reference.drafter.draft_block", watched)
    load_reference_drafter(*make_pair(tmp_path, KINDS["mixed"]))
    assert batches == {1, 2, 3, 4}


def test_projected_rows_give_the_block_of_their_taps(mixed: Pair) -> None:
    projected = [
        mixed.formulas.norm(
            mixed.formulas.tensors["fc.weight"] @ row.astype(np.float64), "hidden_norm.weight"
        )
        for row in mixed.taps
    ]
    context = mixed.drafter.new_context(RowForm.PROJECTED, RowDtype.FLOAT32)
    append(context, 0, np.array(projected, dtype=np.float32))
    assert_is(draft(mixed, context, 11), mixed.expected(11, ROWS))


@pytest.mark.parametrize("dtype", [RowDtype.FLOAT16, RowDtype.BFLOAT16])
def test_rows_of_two_bytes_are_read_as_what_they_are(mixed: Pair, dtype: RowDtype) -> None:
    # bfloat16 is the upper half of float32: cutting the lower half off gives values that both types hold exactly.
    bits = (mixed.taps.view(np.uint32) & 0xFFE00000).view(np.float32)
    given = (
        bits.astype(np.float16)
        if dtype is RowDtype.FLOAT16
        else (bits.view(np.uint32) >> 16).astype(np.uint16)
    )
    cut = given.astype(np.float32) if dtype is RowDtype.FLOAT16 else bits
    context = mixed.drafter.new_context(RowForm.RAW, dtype)
    append(context, 0, given)
    expected = mixed.formulas.block(dict(enumerate(cut)), 2, ROWS)
    assert_is(draft(mixed, context, 2), expected)


def test_rows_may_lie_at_any_address(mixed: Pair) -> None:
    raw = bytearray(1 + mixed.taps.nbytes)
    raw[1:] = mixed.taps.tobytes()
    context = mixed.drafter.new_context(RowForm.RAW, RowDtype.FLOAT32)
    context.append(0, memoryview(bytes(raw))[1:], ROWS)
    assert_is(draft(mixed, context, 3), mixed.expected(3, ROWS))


def test_a_windowed_drafter_needs_no_row_before_its_window(sliding: Pair) -> None:
    assert sliding.drafter.facts.window == WINDOW - 1
    context = sliding.context()
    whole = draft(sliding, context, 12)
    context.drop_before(context.end - sliding.drafter.facts.window)
    assert draft(sliding, context, 12) == whole
    context.drop_before(context.start + 1)
    assert draft(sliding, context, 12) != whole


def test_a_long_window_keeps_its_memory_bounded_and_its_rows_right(sliding: Pair) -> None:
    context = sliding.drafter.new_context(RowForm.RAW, RowDtype.FLOAT32)
    rounds = 60
    taps = np.random.default_rng(4).standard_normal((rounds * 10, sliding.taps.shape[1])).astype(np.float32)
    capacities = set()
    for first in range(0, rounds * 10, 10):
        append(context, first, taps[first : first + 10])
        context.drop_before(max(context.start, context.end - sliding.drafter.facts.window))
        capacities.add(context._keys.shape[1])
    assert max(capacities) <= 128
    end, window = rounds * 10, sliding.drafter.facts.window
    expected = sliding.formulas.block({p: taps[p] for p in range(end - window, end)}, 1, end)
    assert_is(draft(sliding, context, 1), expected)


def test_a_cleared_context_starts_again_anywhere(mixed: Pair) -> None:
    context = mixed.context()
    context.clear()
    assert context.start == context.end
    append(context, 33, mixed.taps[33:])
    assert (context.start, context.end) == (33, ROWS)
    assert_is(draft(mixed, context, 8), mixed.expected(8, ROWS, first=33))


def test_rows_that_are_not_finite_fail_their_request_alone(mixed: Pair) -> None:
    sick, well = mixed.context(), mixed.context()
    append(sick, 39, np.full_like(mixed.taps[:1], np.nan))
    failed, drafted = mixed.drafter.draft([wish(sick, 5), wish(well, 5)])
    assert isinstance(failed, DraftFailure)
    assert isinstance(drafted, Draft)
    assert_is(drafted, mixed.expected(5, ROWS))


def test_rows_before_the_window_start_cannot_matter_even_if_they_are_not_finite(mixed: Pair) -> None:
    context = mixed.drafter.new_context(RowForm.RAW, RowDtype.FLOAT32)
    append(context, 0, np.full((33, mixed.taps.shape[1]), np.inf, np.float32))
    append(context, 33, mixed.taps[33:])
    assert_is(draft(mixed, context, 8, window_start=33), mixed.expected(8, ROWS, first=33))


def test_bfloat16_agrees_with_float32_as_far_as_its_rounding_allows(mixed: Pair) -> None:
    rounded = ReferenceDrafter(read_drafter(*mixed.folders), dtype="bfloat16")
    agreed = 0
    for end in range(1, ROWS):
        exact = draft(mixed, mixed.context(end), end)
        context = rounded.new_context(RowForm.RAW, RowDtype.FLOAT32)
        append(context, 0, mixed.taps[:end])
        (close,) = rounded.draft([wish(context, end)])
        assert isinstance(close, Draft)
        agreed += close.drafts[0] == exact.drafts[0]
        assert close.confidences[0] == pytest.approx(exact.confidences[0], abs=0.05)
    assert agreed >= 0.9 * (ROWS - 1)


def test_another_block_length_is_another_block_of_queries(mixed: Pair) -> None:
    drafter = load_reference_drafter(*mixed.folders, block_length=3)
    assert drafter.facts.block_length == 3
    assert drafter.facts.identity == mixed.drafter.facts.identity
    context = drafter.new_context(RowForm.RAW, RowDtype.FLOAT32)
    append(context, 0, mixed.taps)
    (result,) = drafter.draft([wish(context, 6, n_out=3)])
    assert isinstance(result, Draft)
    windows, causal = RULES["mixed"]
    formulas = Formulas(*mixed.folders, windows, causal, block_length=3)
    assert_is(result, formulas.block(dict(enumerate(mixed.taps)), 6, ROWS))


def test_a_vocabulary_padded_beyond_the_targets_drafts_only_the_targets_ids(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folders = make_pair(tmp_path, replace(KINDS["full"], config={"vocab_size": 520}), seed=7)
    tensors = load_file(folders[0] / "model.safetensors")
    target = load_file(folders[1] / "model.safetensors")
    loud = np.full((8, HIDDEN), 50.0, np.float32)  # rows that would win every argmax by one sign or the other
    for ours, theirs in (
        ("embed_tokens.weight", target["model.embed_tokens.weight"]),
        ("lm_head.weight", target["lm_head.weight"]),
        ("markov_head.markov_w1.weight", tensors["markov_head.markov_w1.weight"]),
        ("markov_head.markov_w2.weight", tensors["markov_head.markov_w2.weight"]),
    ):
        tensors[ours] = np.concatenate((theirs, loud))
    save_file(tensors, folders[0] / "model.safetensors")
    drafter = load_reference_drafter(*folders)
    assert drafter.facts.vocabulary == 512
    context = drafter.new_context(RowForm.RAW, RowDtype.FLOAT32)
    append(context, 0, np.ones((3, HIDDEN * len(TAPS)), np.float32))
    results = drafter.draft([wish(context, anchor) for anchor in range(16)])
    assert all(isinstance(result, Draft) and max(result.drafts) < 512 for result in results)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda c, d: c.append(41, memoryview(b""), 0), "rows at 41 do not follow"),
        (lambda c, d: c.append(40, memoryview(b"123"), 1), "1 rows take 1536 bytes, not 3"),
        (lambda c, d: c.drop_before(41), "41 lies outside"),
        (lambda c, d: d.draft([replace(wish(c, 1), anchor_position=39)]), "the anchor is at 39"),
        (lambda c, d: d.draft([wish(c, 1, window_start=41)]), "window_start 41"),
        (lambda c, d: d.draft([wish(c, 1, n_out=6)]), "n_out 6"),
        (lambda c, d: d.draft([wish(c, 512)]), "anchor 512"),
    ],
)
def test_what_the_service_must_never_pass_is_refused_by_name(mixed: Pair, call: Any, what: str) -> None:
    with pytest.raises(ContextMisuseError, match=what):
        call(mixed.context(), mixed.drafter)


def test_no_wishes_give_no_drafts(mixed: Pair) -> None:
    assert mixed.drafter.draft([]) == []
