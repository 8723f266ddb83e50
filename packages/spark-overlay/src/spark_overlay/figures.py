"""The figures of a drafter: counters, latencies, acceptance, and the one mapping that files and logs show.

Owned by the engine's thread.  Must never do I/O: `report` writes what `snapshot` returns.
"""

from dataclasses import dataclass, field

from spark_overlay.histogram import Histogram

LATENCIES = {
    "gather_us": "bringing the rows to the host: the gather, its copy and the wait for it",
    "rank0_round_us": "the whole remote round on the engine's thread, the gather included",
    "rtt_us": "from the first message of a round to the reply that it waited for",
    "wire_us": "of that, what the worker does not account for: the network and both ends of it",
    "worker_us": "of that, what the worker reports: waiting for its turn and drafting",
}


@dataclass
class Acceptance:
    """What verification made of our drafts.  Index k of the lists is draft position k."""

    verified: int = 0
    accepted: int = 0
    drafted: int = 0
    accepted_by_position: list[int] = field(default_factory=list)
    drafted_by_position: list[int] = field(default_factory=list)

    def record(self, accepted: int, drafted: int) -> None:
        """One request's verification: the first accepted of its drafted tokens were right."""
        accepted = min(max(accepted, 0), drafted)
        if drafted <= 0:
            return
        for counts in (self.accepted_by_position, self.drafted_by_position):
            counts.extend([0] * (drafted - len(counts)))
        self.verified += 1
        self.accepted += accepted
        self.drafted += drafted
        for position in range(drafted):
            self.drafted_by_position[position] += 1
            self.accepted_by_position[position] += position < accepted

    def summary(self) -> dict[str, object]:
        """Counts, tokens accepted per verified request, and the share accepted by position."""
        pairs = zip(self.accepted_by_position, self.drafted_by_position, strict=True)
        return {
            "verified": self.verified,
            "accepted": self.accepted,
            "drafted": self.drafted,
            "accepted_per_round": round(self.accepted / self.verified, 4) if self.verified else 0.0,
            "rate_by_position": [round(got / of, 4) if of else 0.0 for got, of in pairs],
            "accepted_by_position": list(self.accepted_by_position),
            "drafted_by_position": list(self.drafted_by_position),
        }


class Figures:
    """Latencies and acceptance of one engine run."""

    def __init__(self) -> None:
        self.latency = {name: Histogram() for name in LATENCIES}
        self.acceptance = Acceptance()

    def add(self, name: str, value_us: float) -> None:
        """Count one latency by name."""
        self.latency[name].add(value_us)

    def snapshot(self) -> dict[str, object]:
        """Plain JSON values."""
        return {
            "latency": {name: histogram.summary() for name, histogram in self.latency.items()},
            "acceptance": self.acceptance.summary(),
        }
