"""What the worker offers when its drafter cannot take rows the engine's way, and what its flags say."""

from dataclasses import replace
from typing import Unpack

import pytest
from engine_twin import LIMITS, MOCK, ShapeChanges, shape_of
from ofl.contract.dspark_v1 import Hello, HelloFlag, Policy, RowDtype, RowForm, Status
from x86_worker.session.errors import RemoteError
from x86_worker.session.hello import Greeter

NARROW = replace(
    MOCK.facts(), row_elements={RowForm.PROJECTED: 2}, row_dtypes=frozenset({RowDtype.FLOAT16}), fake=False
)


def hello(**changes: Unpack[ShapeChanges]) -> Hello:
    return Hello(b"\1" * 16, Policy.CAPACITY, shape_of(**changes))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (ShapeChanges(row_dtype=RowDtype.FLOAT16), "row_form"),
        (ShapeChanges(row_form=RowForm.PROJECTED, row_elements=2), "row_dtype"),
    ],
)
def test_a_way_of_sending_rows_that_the_drafter_cannot_take_is_named(
    changes: ShapeChanges, field: str
) -> None:
    with pytest.raises(RemoteError) as caught:
        Greeter(NARROW, LIMITS, "w", 1).answer(hello(**changes))
    assert (caught.value.status, caught.value.field) == (Status.MISMATCH, f"hello.{field}")
    assert caught.value.hello is not None
    offered = caught.value.hello.shape
    assert (offered.row_form, offered.row_dtype) == (RowForm.PROJECTED, RowDtype.FLOAT16)


def test_the_way_that_it_takes_is_taken() -> None:
    fitting = hello(row_form=RowForm.PROJECTED, row_elements=2, row_dtype=RowDtype.FLOAT16)
    assert Greeter(NARROW, LIMITS, "w", 1).answer(fitting).shape.row_elements == 2


@pytest.mark.parametrize("confidence", [True, False])
@pytest.mark.parametrize("fake", [True, False])
def test_the_flags_say_whether_confidences_and_drafts_are_real(confidence: bool, fake: bool) -> None:
    facts = replace(MOCK.facts(), has_confidence=confidence, fake=fake)
    flags = Greeter(facts, LIMITS, "w", 1, any_policy=True).answer(hello()).flags
    assert bool(flags & HelloFlag.CONFIDENCE) is confidence
    assert bool(flags & HelloFlag.FAKE_DRAFTS) is fake
