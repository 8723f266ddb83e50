"""Table rows of the synthetic engine: what hooks would record of readers that are right by construction.

A server is there, gone, held, or of another manifest; a fault strikes where its owner decodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ofl.contract import observation_v1 as seen
from qualification.checks.model import FaultOrder
from synthetic_parts import Request, tag

LAYERS = (3, 7)
OWN, FOREIGN = "ab" * 32, "cd" * 32
IDS_PER_TOKEN = 2
REASONS = {"server_killed": "not_connected", "server_held": "late", "other_manifest": "not_connected"}
Entries = Sequence[tuple[Request, seen.ScheduledRequest]]


@dataclass
class SyntheticTables:
    """Readers of one arm.  source: "local" or "remote".  record: takes a record for a rank."""

    source: str
    ranks: int
    record: Callable[[seen.Record, int], None]
    armed: dict[str, FaultOrder] = field(default_factory=dict)
    struck: FaultOrder | None = None
    until: int = 0
    lookups: int = 0

    def begin(self) -> None:
        """The readers are made, and meet their server."""
        self._stand(0, "closed")
        if self.source == "remote":
            self._stand(0, "open")

    def arm(self, check: str, order: FaultOrder) -> None:
        """Without effect where there is no server."""
        if self.source == "remote":
            self.armed[order.request] = order
            self.record(seen.Fault(0, check, order.request, order.action, "armed"), 0)

    def step(self, check: str, step: int, entries: Entries) -> None:
        """The lookups of a step, with what its faults do to them."""
        if self.struck is not None and step >= self.until:
            self._over(check, step)
        for request, entry in entries:
            if entry.first_position >= request.prompt and request.name in self.armed:
                self._strike(check, step, self.armed.pop(request.name))
        for layer in LAYERS:
            self.lookups += 1
            for rank in range(self.ranks):
                self.record(self._read(step, layer, rank, entries), rank)
            if self.struck is not None and self.struck.action == "server_held":
                self._over(check, step)

    def _strike(self, check: str, step: int, order: FaultOrder) -> None:
        self.struck, self.until = order, step + order.hold_steps
        moment = "held" if order.action == "server_held" else "struck"
        self.record(seen.Fault(step, check, order.request, order.action, moment), 0)
        if order.action == "other_manifest":
            self._stand(step, "refused", "identity", FOREIGN)
        elif order.action == "server_killed":
            self._stand(step, "closed")

    def _over(self, check: str, step: int) -> None:
        assert self.struck is not None
        self.record(seen.Fault(step, check, self.struck.request, self.struck.action, "released"), 0)
        self.struck = None
        self._stand(step, "open")

    def _stand(self, step: int, status: str, refused: str = "", offered: str = "") -> None:
        for rank in range(self.ranks):
            opened = seen.TableOpened(
                step, rank, self.ranks, len(LAYERS), OWN, self.source, status, refused, offered
            )
            self.record(opened, rank)

    def _read(self, step: int, layer: int, rank: int, entries: Entries) -> seen.TableRead:
        remote = self.source == "remote" and self.struck is None
        reason = "no_server" if self.source == "local" else REASONS[self.struck.action] if self.struck else ""
        spans = [(request.name, entry.first_position, entry.q) for request, entry in entries]
        ids = tag("table_ids", rank, layer, spans)
        return seen.TableRead(
            step=step,
            requests=tuple(request.name for request, _ in entries),
            lookup=self.lookups,
            layer=layer,
            n_rows=IDS_PER_TOKEN * sum(entry.q for _, entry in entries),
            out_of_shard=sum(entry.first_position == 0 for _, entry in entries),
            ids=ids,
            rows=tag("table_rows", ids),
            outcome="remote" if remote else "local",
            reason=reason,
            replied=remote,
        )
