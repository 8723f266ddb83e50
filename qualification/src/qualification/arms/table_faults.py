"""Faults of an arm's table server: by case and owner, bound to the engine's steps and to events, never to times.

A fault strikes once, before the first lookup of the first step in which its owner decodes.  Its record stands behind
what it says has happened.

    server_killed   The server is gone for hold_steps engine steps; then another process serves the same tables.
    server_held     The server stands still until the owner's next lookup has ended, so that its reply is late.
    other_manifest  For hold_steps engine steps a server of another manifest is there; then one of the right one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ofl.contract import observation_v1 as seen

from qualification.arms.protocol import FaultOrder
from qualification.arms.serve import ArmFailedError
from qualification.arms.table_server import TableServer

KILLED, HELD, OTHER = "server_killed", "server_held", "other_manifest"
ACTIONS = (KILLED, HELD, OTHER)


@dataclass(frozen=True)
class _Struck:
    """until: the step from which on it is over."""

    case: str
    order: FaultOrder
    until: int


class TableFaults:
    """served, other: folders of shards.  settle: returns once every reader has met the server that is there.

    write: takes records of rank 0.
    """

    def __init__(
        self,
        server: TableServer,
        served: Path,
        other: Path,
        settle: Callable[[], None],
        write: Callable[[seen.Record], None],
    ) -> None:
        self._server, self._served, self._other = server, served, other
        self._settle, self._write = settle, write
        self._case, self._armed = "", dict[str, FaultOrder]()
        self._struck: _Struck | None = None
        self._step = 0

    def arm(self, case: str, faults: Sequence[FaultOrder]) -> None:
        """From now on this case's faults; what the last case left is over.  Raises ArmFailedError."""
        self._over()
        for fault in faults:
            if fault.action not in ACTIONS:
                raise ArmFailedError(f"{fault.action!r} is no fault of a table server")
            self._say(case, fault, "armed")
        self._case, self._armed = case, {fault.request: fault for fault in faults}

    def before_lookups(self, step: int, decoding: Mapping[str, bool]) -> None:
        """A step begins.  decoding: by request of the step, whether its prompt was read before."""
        self._step = step
        if self._struck is not None and step >= self._struck.until:
            self._over()
        for request, decodes in decoding.items():
            if decodes and request in self._armed and self._struck is None:
                self._strike(self._armed.pop(request))

    def after_lookups(self) -> None:
        """Lookups of one layer have ended on every rank."""
        if self._struck is not None and self._struck.order.action == HELD:
            self._over()

    def _strike(self, order: FaultOrder) -> None:
        self._struck = _Struck(self._case, order, self._step + order.hold_steps)
        if order.action == HELD:
            self._server.hold()
        else:
            self._server.kill()
        if order.action == OTHER:
            self._server.start(self._other)
            self._settle()
        self._say(self._case, order, "held" if order.action == HELD else "struck")

    def _over(self) -> None:
        """The right server is there again, and every reader has met it."""
        struck, self._struck = self._struck, None
        if struck is None:
            return
        if struck.order.action == HELD:
            self._server.release()
        elif struck.order.action == OTHER:
            self._server.kill()
        if struck.order.action != HELD:
            self._server.start(self._served)
        self._settle()
        self._say(struck.case, struck.order, "released")

    def _say(self, case: str, order: FaultOrder, moment: str) -> None:
        self._write(seen.Fault(self._step, case, order.request, order.action, moment))
