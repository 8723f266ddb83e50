"""Metric families under construction: names and labels checked, one family per name.  Pure.

What it refuses would make Prometheus refuse the whole scrape: two families of one name, one sample given twice.
"""

import re
from collections.abc import Mapping
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from spark_overlay.stats_file import StatsFileError

PREFIX = "spark_overlay_"
_KINDS = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "summary": SummaryMetricFamily}
Kind = Literal["counter", "gauge", "summary"]


def metric_name(text: str) -> str:
    """A field's name as part of a metric's: whatever stands in the file, the result is a valid one."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)


def _encodable(text: str) -> str:
    """JSON can hold half of a surrogate pair, which no UTF-8 page can."""
    return text.encode(errors="replace").decode()


class Families:
    """Families in the order in which their first samples came.

    labels: those that every sample carries.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = {label: _encodable(text) for label, text in labels.items()}
        self._families: dict[str, Metric] = {}
        self._seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()

    def add(
        self,
        kind: Kind,
        name: str,
        meaning: str,
        value: float,
        labels: Mapping[str, str] | None = None,
        suffix: str = "",
    ) -> None:
        """One sample.  name: without prefix and `_total`.  suffix: a summary's `_count` or `_sum`.

        Raises StatsFileError where the name is another kind's already, or the sample is there.
        """
        full = PREFIX + metric_name(name)
        family = self._families.get(full)
        if family is None:
            family = self._families[full] = _KINDS[kind](full, _encodable(meaning))
        sample = full + ("_total" if kind == "counter" else suffix)
        own = {label: _encodable(text) for label, text in (labels or {}).items()}
        all_labels = self._labels | own
        key = (sample, tuple(sorted(all_labels.items())))
        if family.type != kind or key in self._seen:
            raise StatsFileError(f"two fields would both be {sample}")
        self._seen.add(key)
        # The families' own add_metric knows no quantiles, and this is what it does.
        family.add_sample(sample, all_labels, value)

    def all(self) -> list[Metric]:
        """What was added."""
        return list(self._families.values())
