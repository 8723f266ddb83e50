"""The local and the remote drafter of one step, compared where both drafted from the same state.

The remote half is taken from the reply as the transport saw it, the local half from what shadow hands over.  Left out
is what cannot be compared: a window that lacks rows, a reply of less than the whole block, and blocks that reach past
the engine's longest sequence, whose last positions the two clip each in its own way.
"""

from collections.abc import Sequence

from ofl.contract.dspark_v1 import EntryFlag, StepEntry
from ofl.contract.observation_v1 import Drafter

from spark_overlay.interface import LocalDrafts
from spark_overlay.observe.exchanges import Exchanges
from spark_overlay.observe.messages import Echo
from spark_overlay.observe.names import harness_name
from spark_overlay.observe.watch import Watch


class Comparison:
    """max_positions: of the engine's longest sequence."""

    def __init__(self, watch: Watch, exchanges: Exchanges, max_positions: int) -> None:
        self._watch, self._exchanges, self._max_positions = watch, exchanges, max_positions

    def compare(self, local: LocalDrafts) -> None:
        """Shadow handed over this step's local drafts, in the order of its requests."""
        try:
            for request, drafts in zip(self._watch.requests, local.drafts.tolist(), strict=True):
                replied = self._exchanges.replied.get(request.slot)
                if request.sampled and replied is not None:
                    self._compare(harness_name(request.name), drafts, *replied)
        except Exception as error:
            # Not narrower: whatever is wrong with a hook, the engine goes on.
            self._watch.sink.defect(error)

    def _compare(self, name: str, local: Sequence[int], entry: StepEntry, echo: Echo) -> None:
        past_the_end = entry.anchor_position + len(local) >= self._max_positions
        if entry.flags & EntryFlag.PARTIAL_WINDOW or len(echo.drafts) < len(local) or past_the_end:
            return
        common = 0
        while common < len(local) and local[common] == echo.drafts[common]:
            common += 1
        margin = echo.margins[common] if common < len(local) else 0.0
        self._watch.sink.write(Drafter(self._watch.step, name, len(local), common, margin))
