"""One rank of one start, observed: its file, its hooks, and how they come onto a drafter.

Owns the order in which things are opened and closed.  Facts are the caller's, as only it knows its engine.
"""

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from ofl.contract.observation_v1 import Facts
from ofl.observation_file import Writer

from spark_overlay.decision import Decision
from spark_overlay.interface import LocalDrafts
from spark_overlay.observe.exchanges import Exchanges
from spark_overlay.observe.fault_plan import PlanFile
from spark_overlay.observe.faults import FaultSeam
from spark_overlay.observe.lives import Lives
from spark_overlay.observe.settings import ObserveSettings
from spark_overlay.observe.shadow import Comparison
from spark_overlay.observe.tags import Tags
from spark_overlay.observe.watch import StepRequest, Use, Watch
from spark_overlay.rounds import RemoteDrafter

log = logging.getLogger(__name__)
START_ID_BYTES = 16


def draw_start_id() -> str:
    """A new one; rank 0's is the engine's."""
    return os.urandom(START_ID_BYTES).hex()


class Observer:
    """One rank's hooks.  request_states: the rank's, whose additions are counted from here on.

    Raises OSError where the file cannot be made.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        facts: Facts,
        use: Use,
        request_states: Any,
        on_strike: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings, self._on_strike = settings, on_strike
        self._budget_tokens = facts.budget_tokens
        self.writer = Writer(settings.folder, facts, log=log)
        self.watch = Watch(
            self.writer, Tags(settings.key_bytes, facts.block_length), Lives(request_states), use
        )
        self._exchanges: Exchanges | None = None
        self._seam: FaultSeam | None = None

    def attach(self, drafter: RemoteDrafter, max_positions: int) -> None:
        """Rank 0: watch its connections and its comparison from here on.  Before the drafter starts."""
        exchanges = self._exchanges = Exchanges(self.watch)
        if self._settings.fault_plan is not None:
            self._seam = FaultSeam(
                self.watch, PlanFile(self._settings.fault_plan), self._budget_tokens, self._on_strike
            )
            drafter.link.decorate(self._seam.faulty)
        drafter.link.decorate(exchanges.observed)
        comparison, record_local = Comparison(self.watch, exchanges, max_positions), drafter.record_local

        def observed_record_local(local: LocalDrafts, *args: Any, **kwargs: Any) -> None:
            comparison.compare(local)
            record_local(local, *args, **kwargs)

        drafter.record_local = observed_record_local  # type: ignore[method-assign]

    def begin(self, read: Callable[[], Sequence[StepRequest]]) -> None:
        """A real step reached the drafter."""
        self.watch.begin(read)
        if self._seam is not None:
            self._seam.begin_step()
        if self._exchanges is not None:
            self._exchanges.begin_step()

    def decided(self, read: Callable[[], Decision]) -> None:
        """Rank 0's words were broadcast."""
        self.watch.decided(read)

    def end(self, read: Callable[[], Sequence[Sequence[int]]]) -> None:
        """Drafts left."""
        self.watch.end(read)

    def close(self) -> None:
        """The engine ends; the drafter is closed.  Safe to call twice."""
        if self._exchanges is not None:
            self._exchanges.close()
        self.writer.close()
