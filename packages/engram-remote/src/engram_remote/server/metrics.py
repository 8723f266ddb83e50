"""What a server counts, for Prometheus.  Needs the extra `server`."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engram_remote.problem import Problem

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PORT_MAX = 65535
GAUGES = {"connections_open": "connections now", "queue_max": "most lookups under way at once"}
HELP = {
    "connections": "connections negotiated",
    "opens": "OPENs that bound a connection",
    "lookups": "LOOKUPs answered with rows",
    "lookups_inline": "of them, by the receiver itself",
    "lookups_waited": "LOOKUPs that found no idle reply buffer",
    "rows": "rows sent",
    "rows_absent": "of them, zero bytes for ids without a row",
    "bytes": "bytes of the replies with rows",
    "gather_ns": "nanoseconds from reading LOOKUPs to their last rows",
    "stats": "STATS answered",
    "replies_lost": "answers whose connection was gone",
}
REFUSED = "refused_"


class ServerCollector:
    """Collects from a server's counters whenever it is asked.

    counters: gives totals by name.  facts: of the server, as labels of `engram_server_info`.
    """

    def __init__(self, counters: Callable[[], Mapping[str, int]], facts: Mapping[str, str]) -> None:
        self._counters = counters
        self._facts = dict(facts)

    def collect(self) -> "Iterator[Metric]":
        """Counters, gauges, and refusals by status."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        yield InfoMetricFamily("engram_server", "what is served", value=self._facts)
        refused = CounterMetricFamily("engram_refused", "requests refused, by status", labels=["status"])
        for name, value in self._counters().items():
            if name.startswith(REFUSED):
                refused.add_metric([name.removeprefix(REFUSED)], value)
            elif name in GAUGES:
                yield GaugeMetricFamily(f"engram_{name}", GAUGES[name], value=value)
            else:
                yield CounterMetricFamily(f"engram_{name}", HELP[name], value=value)
        yield refused


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT.  Raises Problem."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and host.isascii() and re.fullmatch("[0-9]{1,5}", port) and int(port) <= PORT_MAX):
        raise Problem(f"--metrics {text}: HOST:PORT is needed")
    return host, int(port)


@contextmanager
def metrics_server(address: str, collector: ServerCollector) -> Iterator[str]:
    """Serve metrics over HTTP for as long as the context lasts; the address that was bound.

    Raises Problem where prometheus-client is not installed or the address cannot be listened on.
    """
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError:
        raise Problem("--metrics: needs prometheus-client (pip install 'engram-remote[server]')") from None
    from engram_remote.server.scrapes import ScrapeServer

    host, port = parse_address(address)
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server = ScrapeServer(host, port, make_wsgi_app(registry))
    except OSError as error:
        raise Problem(f"--metrics {address}: cannot be listened on: {error.strerror or error}") from error
    with server:
        yield f"{f'[{host}]' if ':' in host else host}:{server.server_port}"
