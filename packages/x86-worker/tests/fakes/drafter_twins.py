"""Drafters that fail on purpose, around the mock."""

from collections.abc import Callable, Sequence

from ofl.contract.dspark_v1 import RowDtype, RowForm
from x86_worker.drafters.base import Context, Draft, DraftFailure, DraftWish
from x86_worker.mock import MockContext, MockDrafter, MockShape


class FailingContext(MockContext):
    """Raises from the next append, drop or clear once `fail_next` names it."""

    def __init__(self, row_bytes: int, drafter: "FailingDrafter") -> None:
        super().__init__(row_bytes)
        self._drafter = drafter

    def append(self, first_position: int, rows: memoryview, n_rows: int) -> None:
        self._drafter.trip(
            "append half done", lambda: super(FailingContext, self).append(first_position, rows, n_rows)
        )
        self._drafter.trip("append")
        super().append(first_position, rows, n_rows)

    def drop_before(self, position: int) -> None:
        self._drafter.trip("drop_before")
        super().drop_before(position)

    def clear(self) -> None:
        self._drafter.trip("clear")
        super().clear()


class FailingDrafter(MockDrafter):
    """The mock, until told to fail.

    fail_next: the call that raises next.  results: overrides what `draft` returns, once.
    contexts_made: how many contexts were asked for.
    """

    def __init__(self, shape: MockShape) -> None:
        super().__init__(shape)
        self.fail_next: str | None = None
        self.results: list[Draft | DraftFailure] | None = None
        self.contexts_made = 0

    def trip(self, call: str, first: Callable[[], object] = lambda: None) -> None:
        if self.fail_next == call:
            self.fail_next = None
            first()
            raise MemoryError(f"out of memory in {call}")

    def new_context(self, row_form: RowForm, row_dtype: RowDtype) -> Context:
        self.trip("new_context")
        self.contexts_made += 1
        return FailingContext(self.facts.row_elements[row_form] * row_dtype.itemsize, self)

    def draft(self, wishes: Sequence[DraftWish]) -> list[Draft | DraftFailure]:
        self.trip("draft")
        results, self.results = self.results, None
        return super().draft(wishes) if results is None else results
