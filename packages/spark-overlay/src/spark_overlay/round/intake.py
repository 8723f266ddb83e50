"""What a step brings: requests checked one by one, and the rows of the good ones kept.

Owns the entry of rows into ring and slots.  Must never believe an engine's description further than it was checked: a
request described wrongly costs only itself.
"""

from collections.abc import Sequence

from ofl.contract.dspark_v1 import Shape
from ofl.contract.dspark_v1.rules import first_needed

from spark_overlay.round.counters import Counters
from spark_overlay.round.messages import RoundRequest
from spark_overlay.round.ring import Ring, Rows
from spark_overlay.round.session import SessionState
from spark_overlay.round.slots import GENERATION_MAX, Slot


class Intake:
    """Takes in one step after the other."""

    def __init__(
        self, shape: Shape, slots: Sequence[Slot], ring: Ring, session: SessionState, counters: Counters
    ) -> None:
        self._shape, self._slots, self._ring = shape, slots, ring
        self._session, self._counters = session, counters

    def check_step(self, requests: Sequence[RoundRequest]) -> None:
        """Raises ValueError where the requests cannot be of one step (a defect of the caller)."""
        if len(requests) > self._shape.max_slots:
            raise ValueError(f"{len(requests)} requests where {self._shape.max_slots} slots exist")
        if len({request.slot for request in requests}) != len(requests):
            raise ValueError("two requests share a slot")

    def take(self, request: RoundRequest, rows: Rows) -> bool:
        """Keep a request's rows; False where it is described wrongly, and then what its slot held is not trusted.

        rows: uint8 [rows of the step, row_bytes].
        """
        if self._is_valid(request, len(rows)):
            self._keep(request, rows)
            return True
        self._counters.req_bad += 1
        if 0 <= request.slot < len(self._slots):
            self._slots[request.slot].forget()
        return False

    def _is_valid(self, request: RoundRequest, n_rows: int) -> bool:
        shape = self._shape
        return (
            0 <= request.slot < shape.max_slots
            and request.first_position >= 0
            and request.n_rows >= 0
            and request.first_position + request.n_rows <= shape.max_positions
            and 0 <= request.row_offset <= n_rows - request.n_rows
            and 0 <= request.n_out <= shape.block_length
            and (request.n_out == 0 or 0 <= request.anchor < shape.vocabulary)
        )

    def _keep(self, request: RoundRequest, rows: Rows) -> None:
        slot = self._slots[request.slot]
        if not slot.continues(request.request_id, request.first_position, request.added):
            if slot.generation >= GENERATION_MAX:
                self._session.wanted = f"slot {request.slot} ran out of generations"
                slot.generation = 0
            slot.begin_generation(request.request_id, request.first_position)
            self._counters.generation_bumps += 1
            end = request.first_position + request.n_rows
            self._counters.partial_starts += request.first_position > first_needed(self._shape.window, end)
        elif request.first_position < slot.end:
            self._counters.rollbacks += 1
        slot.extend(request.first_position, request.n_rows, self._ring.ring_rows)
        fresh = rows[request.row_offset : request.row_offset + request.n_rows]
        self._ring.store(request.slot, request.first_position, fresh)
