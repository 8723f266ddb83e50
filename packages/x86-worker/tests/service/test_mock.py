"""The mock's drafts depend on everything that a real drafter's would, and on nothing else."""

from dataclasses import replace
from typing import TypedDict

import pytest
from engine_twin import MOCK, rows
from ofl.contract.dspark_v1 import RowDtype, RowForm
from x86_worker.drafters.base import ContextMisuseError, Draft, DraftWish
from x86_worker.mock import MockContext, MockDrafter, MockShape, mock_block, row_digest


class Inputs(TypedDict, total=False):
    """What a draft may depend on."""

    mock: MockShape
    count: int
    window_start: int
    anchor: int
    life: int


def drafted(
    *,
    mock: MockShape = MOCK,
    first: int = 0,
    count: int = 20,
    window_start: int = 12,
    anchor: int = 7,
    drop: int = 0,
    n_out: int = 3,
    life: int = 0,
) -> Draft:
    drafter = MockDrafter(mock)
    context = drafter.new_context(RowForm.RAW, RowDtype.BFLOAT16)
    context.append(first, memoryview(rows(0, first, count, life)), count)
    context.drop_before(max(drop, first))
    (draft,) = drafter.draft([DraftWish(context, window_start, anchor, first + count, n_out)])
    assert isinstance(draft, Draft), draft
    return draft


def test_drafts_are_the_published_formula() -> None:
    digests = [row_digest(p, rows(0, p, 1)) for p in range(12, 20)]
    assert drafted() == mock_block(MOCK.facts().identity, 7, 20, digests, 1000, 3)


def test_drafts_do_not_depend_on_rows_outside_the_window() -> None:
    assert drafted(first=0) == drafted(first=10, count=10) == drafted(drop=12)


@pytest.mark.parametrize(
    "change",
    [
        Inputs(anchor=8),
        Inputs(count=21),
        Inputs(window_start=13),
        Inputs(life=1),
        Inputs(mock=replace(MOCK, identity=b"\5" * 32)),
    ],
)
def test_every_input_changes_the_drafts(change: Inputs) -> None:
    assert drafted(**change) != drafted()


def test_a_shorter_block_is_a_prefix() -> None:
    whole, part = drafted(n_out=3), drafted(n_out=2)
    assert (part.drafts, part.confidences, part.margins) == (
        whole.drafts[:2], whole.confidences[:2], whole.margins[:2],
    )  # fmt: skip


def test_one_row_byte_changes_the_digest() -> None:
    row = bytearray(rows(0, 5, 1))
    before = row_digest(5, row)
    assert row_digest(6, row) != before
    for index in range(len(row)):
        row[index] ^= 1
        assert row_digest(5, row) != before
        row[index] ^= 1


def test_the_context_refuses_what_the_interface_rules_out() -> None:
    context = MockContext(8)
    context.append(10, memoryview(rows(0, 10, 3)), 3)
    assert (context.start, context.end) == (10, 13)
    for first in (9, 14):
        with pytest.raises(ContextMisuseError):
            context.append(first, memoryview(rows(0, first, 1)), 1)
    with pytest.raises(ContextMisuseError):
        context.append(13, memoryview(bytes(9)), 1)
    for position in (9, 14):
        with pytest.raises(ContextMisuseError):
            context.drop_before(position)
    assert (context.start, context.end) == (10, 13)


def test_the_identity_follows_the_shape_unless_it_is_given() -> None:
    assert MOCK.facts().identity == replace(MOCK).facts().identity
    assert MOCK.facts().identity != replace(MOCK, vocabulary=999).facts().identity
    assert MOCK.facts().identity != MOCK.facts().markov_identity
    assert replace(MOCK, identity=b"\7" * 32).facts().identity == b"\7" * 32
    assert MOCK.facts().fake is True
