"""How many draft positions the worker is asked for, and why.  Pure.

The engine's wish is a number of positions for each request; asking for fewer than all saves the worker time.  Shadow
asks for all, so that every position is compared, and so does VLLM_DSPARK_REMOTE_N_OUT=0.
"""

from collections.abc import Sequence
from dataclasses import replace

from spark_overlay.interface import EngineFacts
from spark_overlay.round.messages import RoundRequest
from spark_overlay.settings import PREFIX, Settings


class Wishes:
    """One engine's.

    by_requests: positions asked for, at most, by number of running requests (index 0: none, so none); None where
    every request is asked for in full.  reason: why.
    """

    def __init__(self, settings: Settings, facts: EngineFacts) -> None:
        self._block_length = facts.block_length
        self._whole = settings.policy == "shadow" or not settings.n_out
        cut = [min(drafts, facts.block_length) for drafts in facts.draft_schedule[1:]]
        is_cut = any(drafts < facts.block_length for drafts in cut)
        self.by_requests = [0, *cut] if is_cut and not self._whole else None
        if settings.policy == "shadow":
            self.reason = "shadow: all positions are compared"
        elif not settings.n_out:
            self.reason = f"{PREFIX}_N_OUT is 0"
        elif not facts.draft_schedule:
            self.reason = "no schedule"
        else:
            self.reason = "schedule" if is_cut else "the schedule keeps every position"

    def of(self, requests: Sequence[RoundRequest]) -> Sequence[RoundRequest]:
        """The requests of a round, each with the positions that the worker is asked for."""
        if not self._whole:
            return requests
        full = self._block_length
        return [replace(request, n_out=full) if request.n_out else request for request in requests]
