"""Operators of a simulated engine: they pause, resume, rearm, cap drafts and break the control file, as a seed says.

Owns the twin of the control file, which outlives engines as the real one does.  Orders come while things go wrong; with
the quiet rounds everything is as it is without a file.
"""

import random

from spark_overlay.control.reader import Reading
from spark_overlay.control.record import ControlRecord

PAUSED_SHARE = 0.12
"""Of rounds in which a pause ends, so that some last for a few rounds and some for many."""
KINDS = ("pause", "rearm", "cap", "break", "remove")


class FileTwin:
    """One engine's look at the file; implements `control.reader.Source`."""

    name = "(simulated control file)"

    def __init__(self, orders: "SimulatedOrders") -> None:
        self._orders, self._seen = orders, -1

    def poll(self) -> Reading | None:
        """See `Source`."""
        if self._seen == self._orders.changes:
            return None
        self._seen = self._orders.changes
        return self._orders.reading


class SimulatedOrders:
    """One run's.  rate: share of noisy rounds with an order.

    changes: of the file, so far.  given: orders by kind.  record: what a sound file would say.  reading: what an engine
    reads.
    """

    def __init__(self, seed: int, rate: float, drafts: int) -> None:
        self._random = random.Random(f"orders {seed}")
        self._rate, self._drafts = rate, drafts
        self.record = ControlRecord()
        self.reading = Reading(self.record, present=False)
        self.changes = 0
        self.given = dict.fromkeys(KINDS, 0)

    @property
    def paused(self) -> bool:
        """Whether operators want remote drafting paused."""
        return self.record.state == "paused"

    def before_step(self, *, noisy: bool) -> bool:
        """Maybe an order; whether there was one."""
        draw = self._random
        if not noisy:
            at_rest = ControlRecord(rearm=self.record.rearm)
            return self.record != at_rest and self._write(at_rest)
        if self.paused and draw.random() < PAUSED_SHARE:
            return self._write(self.record.changed(state="active"))
        if draw.random() >= self._rate:
            return False
        kind = draw.choice(KINDS)
        self.given[kind] += 1
        if kind == "break":
            self._show(Reading(None, "is not JSON"))
            return True
        if kind == "remove":
            self.record = ControlRecord(rearm=self.record.rearm)
            self._show(Reading(ControlRecord(), present=False))
            return True
        if kind == "pause":
            return self._write(self.record.changed(state="paused"))
        if kind == "rearm":
            return self._write(self.record.changed(rearm=self.record.rearm + 1))
        return self._write(self.record.changed(depth_max=draw.randint(0, self._drafts)))

    def _write(self, record: ControlRecord) -> bool:
        self.record = record
        self._show(Reading(record))
        return True

    def _show(self, reading: Reading) -> None:
        self.reading = reading
        self.changes += 1
