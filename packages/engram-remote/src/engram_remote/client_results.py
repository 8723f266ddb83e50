"""What a client says about its lookups: results, spans, counters, and the errors of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engram_remote.native import EngramError

MICROSECOND = 1_000


class LookupDeadlineError(EngramError, TimeoutError):
    """The deadline of a wait passed first; the lookup goes on, and its ticket can be waited for again."""


class TicketError(EngramError, LookupError):
    """No lookup has this ticket: it was waited for already, gave way to a later one, or was never made."""


class RowsError(EngramError):
    """Neither the server nor the local shard could give the rows.  The planes hold 0xFF throughout."""


class ClientShardError(EngramError):
    """A local shard is not what its header and the manifest say; the text names file and field."""


class ClientClosedError(EngramError):
    """The client was closed, or belongs to the process before a fork."""


class NoServerError(EngramError, ConnectionError):
    """A server was required, and none could be reached or opened; the text says why."""


@dataclass(frozen=True)
class LookupResult:
    """How a lookup ended.

    outcome: where its rows came from.  reason: why they are not remote, as counters name it; "remote" if they are.
     rows: of all layers.  out_of_shard: ids without a row in this shard, whose planes hold zeros.  elapsed_ns:
     from when the
    proxy took it up.
    """

    outcome: Literal["remote", "local"]
    reason: str
    rows: int
    out_of_shard: int
    elapsed_ns: int


@dataclass(frozen=True)
class Latency:
    """Spans of all lookups with one outcome, nanoseconds; all 0 where there was none.

    buckets: (shortest span of the bucket, lookups in it), ascending, none empty; a bucket spans a quarter of a
    power of two.
    """

    count: int
    sum_ns: int
    min_ns: int
    max_ns: int
    buckets: tuple[tuple[int, int], ...]

    @property
    def mean_ns(self) -> float:
        return self.sum_ns / self.count if self.count else 0.0

    def percentile_ns(self, percent: float) -> int:
        """The span that so many percent of the lookups did not exceed, to the floor of its bucket: up to a fifth low.

        Raises ValueError outside 0 to 100.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"percent must be from 0 to 100, not {percent}")
        wanted, seen = percent / 100 * self.count, 0
        for floor, count in self.buckets:
            seen += count
            if seen >= wanted:
                return max(floor, self.min_ns)
        return self.max_ns


def statistics_line(counters: Mapping[str, int], remote: Latency, wire: str) -> str:
    """One line for a log: remote lookups with rows, MB and latency, fallbacks by reason, failures, reconnects."""
    fallbacks = {
        name.removeprefix("fallbacks_"): count
        for name, count in counters.items()
        if name.startswith("fallbacks_") and count
    }
    reasons = (
        " (" + ", ".join(f"{name} {count}" for name, count in fallbacks.items()) + ")" if fallbacks else ""
    )
    spans = (remote.mean_ns, remote.percentile_ns(50), remote.percentile_ns(99), remote.max_ns)
    mean, p50, p99, most = (f"{span / MICROSECOND:.1f}" for span in spans)
    return (
        f"engram: {counters['lookups_remote']} remote lookups, {counters['rows_remote']} rows, "
        f"{counters['bytes_remote'] / 1e6:.1f} MB, mean {mean} us, p50 {p50} us, p99 {p99} us, max {most} us; "
        f"{sum(fallbacks.values())} fallbacks{reasons}, {counters['lookups_failed']} failed, "
        f"{max(counters['opens'] - 1, 0)} reconnects; {wire}"
    )
