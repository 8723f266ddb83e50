"""The figures of a drafter that are no counters: latencies, acceptance, and shadow's agreement.

Owned by the engine's thread, in fixed memory.  Must never do I/O: `report` writes what `snapshot` returns.
"""

import logging
from collections.abc import Sequence

from ofl.contract.records import printable

from spark_overlay.acceptance import Acceptance, AcceptanceAlarm
from spark_overlay.agreement import Agreement, Mismatch
from spark_overlay.histogram import Histogram
from spark_overlay.interface import LocalDrafts
from spark_overlay.round.counters import Counters
from spark_overlay.round.messages import RoundRequest, RoundResult

log = logging.getLogger(__name__)

LATENCIES = {
    "gather_us": "bringing the rows to the host: the gather, its copy and the wait for it",
    "rank0_round_us": "the whole remote round on the engine's thread, the gather included",
    "rtt_us": "from the first message of a round to the reply that it waited for",
    "wire_us": "of that, what the worker does not account for: the network and both ends of it",
    "worker_us": "of that, what the worker reports: waiting for its turn and drafting",
    "local_propose_us": "the local drafter's proposal in `shadow`; nothing is counted in the other policies",
}
MISMATCHES_LOGGED_MAX = 1000
"""Mismatches that are logged one by one; behind it they are counted, and the newest are in the stats."""


class Figures:
    """What one engine run measured.

    alarm_rounds: verified rounds at zero before the alarm; 0: never.  agreement: for `shadow`, else None.
    """

    def __init__(self, counters: Counters, alarm_rounds: int, agreement: Agreement | None) -> None:
        self._counters = counters
        self.latency = {name: Histogram() for name in LATENCIES}
        self.acceptance = Acceptance()
        self.alarm = AcceptanceAlarm(alarm_rounds)
        self.agreement = agreement
        self._mismatches_logged = 0

    def add(self, name: str, value_us: float) -> None:
        """Count one latency by name."""
        self.latency[name].add(value_us)

    def verified(self, accepted: int, drafted: int, position: int) -> None:
        """One request's verification; see `interface.Drafter.record_acceptance`."""
        if drafted < 1:
            return
        self.acceptance.record(accepted, drafted, position)
        if (sentence := self.alarm.note(accepted)) is not None:
            self._counters.acceptance_alarms += 1
            log.warning("remote DSpark: %s", sentence)

    def compared(self, local: LocalDrafts, requests: Sequence[RoundRequest], result: RoundResult) -> None:
        """One step of `shadow`; see `interface.Drafter.record_local`."""
        assert self.agreement is not None, "only shadow compares"
        if local.propose_us == local.propose_us:
            self.add("local_propose_us", local.propose_us)
        for mismatch in self.agreement.record(local.drafts, requests, result):
            self._tell(mismatch)

    def snapshot(self) -> dict[str, object]:
        """Plain JSON values."""
        return {
            "latency": {name: histogram.summary() for name, histogram in self.latency.items()},
            "acceptance": self.acceptance.summary(),
            "acceptance_alarm": self.alarm.active,
            "shadow": self.agreement.summary() if self.agreement is not None else None,
        }

    def _tell(self, mismatch: Mismatch) -> None:
        if self._mismatches_logged == MISMATCHES_LOGGED_MAX:
            return
        self._mismatches_logged += 1
        log.info(
            "remote DSpark shadow: request %s at %d behind token %d: local %s, remote %s, first mismatch at %d with a "
            "margin of %.3g%s",
            printable(mismatch.request_id),
            mismatch.position,
            mismatch.anchor,
            list(mismatch.local),
            list(mismatch.remote),
            mismatch.first_mismatch,
            mismatch.remote_margin,
            " (near tie)" if mismatch.near_tie else "",
        )
        if self._mismatches_logged == MISMATCHES_LOGGED_MAX:
            log.info(
                "remote DSpark shadow: %d mismatches logged; further ones are counted", MISMATCHES_LOGGED_MAX
            )
