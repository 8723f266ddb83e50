"""Counts how often the engine put a request into each slot.

A request that was preempted, or whose prompt grew, comes back under its old name and often into its old slot;
only the count tells its lives apart.  The count is taken where it happens, by wrapping `add_request` of one
engine's request states, on the object and not on its class.
"""

from typing import Any


class Additions:
    """By slot, the number of requests that were added to it so far."""

    def __init__(self, request_states: Any) -> None:
        self._counts: dict[int, int] = {}
        original = request_states.add_request
        slots = request_states.req_id_to_index

        def add_request(req_id: str, *args: Any, **kwargs: Any) -> Any:
            done = original(req_id, *args, **kwargs)
            slot = slots[req_id]
            self._counts[slot] = self._counts.get(slot, 0) + 1
            return done

        request_states.add_request = add_request

    def __getitem__(self, slot: int) -> int:
        return self._counts.get(slot, 0)
