"""One slot: which rows the ring has of it, and what the worker is known to hold.

Pure state; must never see bytes.

Rules
1. `start .. end-1` are the positions in the ring, always without a hole and always of the slot's request.
2. A slot begins a new generation when its request changes, when the engine says that it was added (again),
   or when its rows start neither at `end` (the expected place) nor within the ring (a rollback).
3. `held` is True while every message about the slot in this session went out in order and none is known to
   have failed.  The worker then holds at least `held_start .. held_end-1`, as true rows, once it has read
   them all.
4. A slot that is not held gets RESET with the best window the ring can give; nothing else makes it held.

Theory of operation.  Messages of one connection are read in order, and the worker truncates at
first_position before it appends, so resending rows from any position up to `held_end` is exact whether or
not the last message was applied.  That is why a round that timed out only moves `held_end` back
(`rewind`): the next round sends the missing rows again, without a RESET.  Every other failure clears
`held`.  A lower bound of the worker's window, not its exact start, is tracked: the contract lets it trim
to the rows that the window needs, at any time.
"""

from dataclasses import dataclass

from ofl.contract.dspark_v1.rules import first_needed

GENERATION_MAX = (1 << 32) - 1


@dataclass(slots=True)
class Slot:
    """Positions are absolute; ends are one past the last.  origin: window_start since the last RESET."""

    request_id: str | None = None
    generation: int = 0
    start: int = 0
    end: int = 0
    held: bool = False
    origin: int = 0
    held_start: int = 0
    held_end: int = 0
    reset_round: int = 0

    def continues(self, request_id: str, first_position: int, added: bool) -> bool:
        """Whether rows from first_position on extend, or roll back within, what this slot has."""
        return not added and self.request_id == request_id and self.start <= first_position <= self.end

    def begin_generation(self, request_id: str, first_position: int) -> None:
        """Another request, or the same from elsewhere: nothing of before counts."""
        self.request_id = request_id
        self.generation += 1
        self.start = self.end = first_position
        self.held = False

    def extend(self, first_position: int, n_rows: int, ring_rows: int) -> None:
        """The ring has these rows now; what lay behind them is true no more, here or at the worker."""
        self.end = first_position + n_rows
        self.held_end = min(self.held_end, first_position)
        self.start = max(self.start, self.end - ring_rows)

    def forget(self) -> None:
        """Trust nothing of this slot: whatever comes next begins a generation."""
        self.request_id = None
        self.held = False

    def sent(self, first_position: int, end: int, reset: bool, window: int, round_number: int) -> None:
        """Rows first_position .. end-1 left in order; the worker may trim to the window that end needs."""
        if reset:
            self.held = True
            self.origin = self.held_start = first_position
            self.reset_round = round_number
        self.held_end = end
        self.held_start = max(self.held_start, first_needed(window, end))

    def rewind(self, held_end: int) -> None:
        """It is not known whether the rows from held_end on arrived: send them again.

        If they did, the worker may have trimmed to what they needed.  The context counts from there on, so that
        a message may end before them again, as one does where they go over several rounds.
        """
        self.held_end = held_end
        self.origin = max(self.origin, self.held_start)
