"""Shared by tests of what reads the stats file: the figures of a real drafter after rounds of every kind.

Makes `drafter_rig` importable (tests are imported by path).
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from spark_overlay.interface import LocalDrafts
from spark_overlay.round.messages import RoundRequest, RoundResult

sys.path.insert(0, str(Path(__file__).parent))

from drafter_rig import FACTS, DrafterRig, make_settings

# A shared machine may stall any example; the suite's own limits catch a hang.
settings.register_profile("overlay", deadline=None)
settings.load_profile("overlay")

ENGINE = replace(FACTS, draft_schedule=(0, 4, 4, 2))


class Run(DrafterRig):
    """Rounds of up to three requests, each in its slot."""

    def __init__(self, **changes: str) -> None:
        super().__init__(make_settings(**changes), ENGINE)
        self.policy = self.settings.policy
        self.ends = [0, 0, 0]

    def step(
        self,
        n_rows: int,
        *,
        n_out: int = 4,
        slot: int = 0,
        first: int | None = None,
        differs_at: int | None = None,
    ) -> RoundResult:
        """The next rows of one request, or rows from first on after a prefix-cache hit.

        differs_at: the draft position from which on shadow's local drafter drafts something else.
        """
        if first is not None:
            self.ends[slot] = first
        request = RoundRequest(slot, f"r{slot}", self.ends[slot], n_rows, 0, 5, n_out)
        self.ends[slot] += n_rows
        result = self.drafter.round([request], os.urandom(n_rows * FACTS.row_bytes), gather_us=3.0)
        if self.policy == "shadow":
            drafts = result.drafts.astype(np.int64)
            if differs_at is not None:
                drafts[:, differs_at:] = (drafts[:, differs_at:] + 1) % FACTS.vocabulary
            self.drafter.record_local(LocalDrafts(drafts, 40.0), [request], result)
        return result

    def eventful(self) -> "Run":
        """Most of what can happen, once."""
        assert self.step(3).reason == "not_ready"
        transport = self.connect()
        for accepted in (4, 2, 0):
            assert self.step(5).ok.all()
            self.drafter.record_acceptance(accepted, 4, self.ends[0])
        assert self.step(2, n_out=0).reason == ""
        assert self.step(2, slot=1, first=100).ok.all()
        self.drafter.record_acceptance(1, 4, self.ends[1])
        transport.silent = True
        assert self.step(2).reason == "timeout"
        transport.silent = False
        transport.change = lambda body: body[:-1]
        assert self.step(2).reason == "bad_reply"
        transport.change = bytes
        assert self.step(2, differs_at=2).ok.all()
        transport.kill()
        assert self.step(2).reason == "transport_error"
        if self.policy == "resilience":
            self.drafter.record_local_fallback(1)
        return self


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """Makes a run under the settings given by the last parts of their names."""
    return Run
