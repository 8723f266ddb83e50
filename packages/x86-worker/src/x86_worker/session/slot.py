"""One slot of a session: a context that never disagrees with what the engine was told.

Rules
1. The context holds rows start .. end-1 of one generation, without holes.  A slot that holds no row can only
   be begun anew, by RESET.
2. An older generation is STALE and changes nothing.  A newer one needs RESET.
3. Rows are taken at start <= first_position <= end: what lay at and after first_position goes first.
4. An append that would leave rows missing between what the engine may use and what is held is a GAP, and the
   slot forgets its rows: messages are pipelined, and the next one may fit by its positions to rows that the
   refused one was to replace.
5. Whatever the drafter raises costs the slot its context: one in an unknown state is never used again.

Theory of operation.  The engine decides and the worker checks.  window_start is the lowest position that the
engine may use, so rows below it go; of a windowed drafter so do rows that no query can attend to, but for a
margin of one block, so that a small rollback still finds a whole window.
"""

from collections.abc import Callable

from ofl.contract.dspark_v1 import EntryFlag, RequestStatus, Shape, StepEntry
from ofl.contract.dspark_v1.rules import first_needed
from ofl.contract.records import Buffer

from x86_worker.drafters.base import Context

_RESET = EntryFlag.RESET.value


class Slot:
    """Generation and context of one request slot.

    new_context: makes an empty context, at a RESET of a slot that has none.
    context: None before the first RESET, after a GAP and after a failure.  failure: why an entry ended in DRAFTER.
    """

    def __init__(self, new_context: Callable[[], Context], shape: Shape) -> None:
        self.context: Context | None = None
        self.generation = 0
        self.failure = ""
        self._new_context = new_context
        self._window = shape.window
        self._margin = shape.block_length + 1

    @property
    def start(self) -> int:
        """Lowest position held."""
        return self.context.start if self.context else 0

    @property
    def end(self) -> int:
        """One past the highest position held; equal to start where no row is."""
        return self.context.end if self.context else 0

    @property
    def rows(self) -> int:
        """Rows held."""
        return self.end - self.start

    def apply(self, entry: StepEntry, rows: Buffer) -> RequestStatus:
        """Takes the rows of an entry, or says why not.  Never raises for what a drafter does."""
        if entry.generation < self.generation:
            return RequestStatus.STALE_GENERATION
        reset = int(entry.flags) & _RESET != 0
        if not reset:
            if entry.generation > self.generation or not self.rows:
                return RequestStatus.NEEDS_RESET
            if self._leaves_a_gap(entry):
                self.context = None
                return RequestStatus.GAP
        try:
            context = self._begun(entry.generation) if reset else self.context
            assert context is not None, "a slot that holds rows has a context"
            context.append(entry.first_position, memoryview(rows), entry.n_rows)
            keep = min(self._keep_from(entry), context.end)
            if keep > context.start:
                context.drop_before(keep)
        except Exception as error:
            # Not narrower: a drafter may raise anything (out of memory, a CUDA error), and the others go on.
            self.fail(f"append: {type(error).__name__}: {error}")
            return RequestStatus.DRAFTER
        return RequestStatus.OK

    def fail(self, reason: str) -> None:
        """Forget the context after a failure of the drafter; the next entry needs RESET."""
        self.failure = reason
        self.context = None

    def _begun(self, generation: int) -> Context:
        """An empty context for a RESET."""
        self.generation = generation
        if self.context is None:
            self.context = self._new_context()
        else:
            self.context.clear()
        return self.context

    def _leaves_a_gap(self, entry: StepEntry) -> bool:
        if not self.start <= entry.first_position <= self.end:
            return True
        return self.start > max(entry.window_start, first_needed(self._window, entry.anchor_position))

    def _keep_from(self, entry: StepEntry) -> int:
        """Lowest position worth keeping after the entry."""
        keep = entry.window_start
        if self._window:
            keep = max(keep, first_needed(self._window, entry.anchor_position) - self._margin)
        return keep
