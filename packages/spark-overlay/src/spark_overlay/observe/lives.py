"""Counts stays of requests in slots, where they begin: at `add_request` of one engine's request states.

On the object and not on its class.  Apart from the product's own count (`vllm_seam.additions`), as observations judge
it.
"""

from typing import Any


class Lives:
    """By slot, the stay that it has now: 1 for the first stay of all, 0 where nobody was added."""

    def __init__(self, request_states: Any) -> None:
        self._begun = 0
        self._by_slot: dict[int, int] = {}
        original = request_states.add_request
        slots = request_states.req_id_to_index

        def add_request(req_id: str, *args: Any, **kwargs: Any) -> Any:
            done = original(req_id, *args, **kwargs)
            self._begun += 1
            self._by_slot[slots[req_id]] = self._begun
            return done

        request_states.add_request = add_request

    def __getitem__(self, slot: int) -> int:
        return self._by_slot.get(slot, 0)
