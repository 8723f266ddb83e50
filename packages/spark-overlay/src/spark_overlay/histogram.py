"""Latency figures in fixed memory: log-spaced buckets, exact maximum.

Adding is one logarithm and one increment, so that a round may do it.  A percentile is off by at most
half a bucket's width, 4.5 %.
"""

import math

BUCKETS_PER_DOUBLING = 8
_BUCKETS = 32 * BUCKETS_PER_DOUBLING
"""1 microsecond to 2**32 of them, more than an hour."""


class Histogram:
    """Values in microseconds; what is below 1 counts as 1."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.sum_us = 0.0
        self.max_us = 0.0

    def add(self, value_us: float) -> None:
        """Count one value; negative ones, NaN and infinity, which no clock gives, count as 0."""
        value_us = value_us if 0 < value_us < math.inf else 0.0
        index = int(math.log2(value_us) * BUCKETS_PER_DOUBLING) if value_us > 1 else 0
        self._counts[min(index, _BUCKETS - 1)] += 1
        self.count += 1
        self.sum_us += value_us
        self.max_us = max(self.max_us, value_us)

    def percentile(self, share: float) -> float:
        """The value that share (0..1) of the values do not exceed; 0 where there is none."""
        rank = max(1, math.ceil(share * self.count))
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                middle: float = 2 ** ((index + 0.5) / BUCKETS_PER_DOUBLING)
                return min(middle, self.max_us)
        return 0.0

    def summary(self) -> dict[str, float]:
        """count, sum, p50, p90, p99 and max, in microseconds with one decimal."""
        return {
            "count": self.count,
            "sum": round(self.sum_us, 1),
            "p50": round(self.percentile(0.50), 1),
            "p90": round(self.percentile(0.90), 1),
            "p99": round(self.percentile(0.99), 1),
            "max": round(self.max_us, 1),
        }
