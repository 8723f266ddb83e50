"""What a measurement of lookups says.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROWS = (288, 49_152)
"""A decode step of 24 tokens and a prefill chunk of 4,096, at 12 hash columns a rank: the first deployment's sizes."""
REMOTE, LOCAL_RAM, DISK_WARM, DISK_COLD = "remote RAM", "local RAM", "disk, warm", "disk, cold"
SOURCES = (REMOTE, LOCAL_RAM, DISK_WARM, DISK_COLD)


@dataclass(frozen=True)
class Spread:
    """Nearest-rank percentiles of durations, in nanoseconds."""

    count: int
    min_ns: int
    p50_ns: int
    p99_ns: int
    max_ns: int

    @classmethod
    def of(cls, samples_ns: Sequence[int]) -> "Spread":
        """Of at least one sample."""
        ordered = sorted(samples_ns)
        last = len(ordered) - 1
        middle, high = (min(last, -(-per_cent * len(ordered) // 100) - 1) for per_cent in (50, 99))
        return cls(len(ordered), ordered[0], ordered[middle], ordered[high], ordered[last])


@dataclass(frozen=True)
class Size:
    """Lookups of one number of rows.

    gather: numpy.take over the same packed rows in memory, the copy that no lookup can do without.  wire: a request of
    the ids' size answered by a placed reply of the rows' size over the same transport, by endpoint.  lookups: by
    source, and for the remote ones by source and endpoint.
    """

    rows: int
    row_bytes: int
    gather: Spread
    wire: Mapping[str, Spread]
    lookups: Mapping[tuple[str, str], Spread]

    def ratio_to_gather(self, source: str, endpoint: str = "") -> float:
        """Median of a lookup over the median of the gather."""
        return self.lookups[source, endpoint].p50_ns / self.gather.p50_ns

    def ratio_to_floor(self, endpoint: str) -> float:
        """Median of a remote lookup over wire and gather together, which no remote lookup of one batch can beat."""
        floor = self.gather.p50_ns + self.wire[endpoint].p50_ns
        return self.lookups[REMOTE, endpoint].p50_ns / floor

    def record(self) -> dict[str, Any]:
        """For JSON."""
        lines = []
        for (source, endpoint), spread in self.lookups.items():
            line: dict[str, Any] = {"source": source, "endpoint": endpoint, **_record(spread)}
            line["gb_per_s"] = round(self.rows * self.row_bytes / spread.p50_ns, 3)
            line["ratio_to_gather"] = round(self.ratio_to_gather(source, endpoint), 3)
            if endpoint in self.wire:
                line["ratio_to_wire"] = round(spread.p50_ns / self.wire[endpoint].p50_ns, 3)
                line["ratio_to_wire_and_gather"] = round(self.ratio_to_floor(endpoint), 3)
            lines.append(line)
        wire = [{"endpoint": endpoint, **_record(spread)} for endpoint, spread in self.wire.items()]
        return {"rows": self.rows, "gather": _record(self.gather), "wire": wire, "lookups": lines}


def _record(spread: Spread) -> dict[str, Any]:
    in_us = {name: getattr(spread, f"{name}_ns") / 1e3 for name in ("min", "p50", "p99", "max")}
    return {"count": spread.count} | {f"{name}_us": round(value, 2) for name, value in in_us.items()}
