"""What the peers' tools print, as numbers.  Pure; each function raises ValueError naming what is missing.

Every tool has its own unit and its own idea of a latency; nothing leaves here but nanoseconds of a whole round
trip, and bytes a second.
"""

import re
from itertools import pairwise

MIB = 1 << 20


def sockperf_round_trip_ns(text: str, percentile: str = "50.000") -> float:
    """A percentile of `sockperf ping-pong --full-rtt`, which prints microseconds."""
    return 1000 * _number(rf"percentile {re.escape(percentile)} =\s+([0-9.]+)", text, "sockperf percentiles")


def qperf_round_trip_ns(text: str) -> float:
    """The mean of `qperf -uu tcp_lat`, which prints nanoseconds of half a round trip."""
    return 2 * _number(r"latency\s+=\s+([0-9.]+) ns\b", text, "qperf latency in ns")


def qperf_bytes_per_s(text: str) -> float:
    """Of `qperf -uu tcp_bw`."""
    return _number(r"\bbw\s+=\s+([0-9.]+) bytes/sec", text, "qperf bw in bytes/sec")


def ucx_round_trip_ns(text: str) -> float:
    """The median of `ucx_perftest -t tag_lat -f -v`, which prints microseconds of half a round trip."""
    return 2000 * _ucx_column(text, "50.0_percentile_lat")


def ucx_bytes_per_s(text: str) -> float:
    """The average of `ucx_perftest -t tag_bw -f -v`, which prints MiB a second."""
    return MIB * _ucx_column(text, "avg_bw")


def perftest_round_trip_ns(text: str) -> float:
    """The median of `ib_send_lat` or `ib_write_lat`, which print microseconds of half a round trip."""
    return 2000 * _perftest_column(text, "t_typical[usec]")


def perftest_bytes_per_s(text: str) -> float:
    """The average of `ib_write_bw` or `ib_send_bw`, which print MiB a second and call it MB."""
    return MIB * _perftest_column(text, "BW average[MB/sec]")


def _number(pattern: str, text: str, what: str) -> float:
    found = re.findall(pattern, text)
    if not found:
        raise ValueError(f"no {what} in what the tool printed")
    return float(found[-1])


def _ucx_column(text: str, name: str) -> float:
    """A column of the last of two CSV lines."""
    lines = [line.split(",") for line in text.splitlines() if "," in line]
    for heading, row in pairwise(lines):
        if name in heading and len(row) == len(heading):
            return float(row[heading.index(name)])
    raise ValueError(f"no column {name} of ucx_perftest in what the tool printed")


_PERFTEST_HEADING = re.compile(r"#\S+|t_\w+\[usec\]|[0-9.]+% percentile\[usec\]|BW \w+\[\S+\]|MsgRate\[\S+\]")


def _perftest_column(text: str, name: str) -> float:
    """A column under perftest's heading; headings hold spaces, rows do not."""
    lines = text.splitlines()
    for heading, row in pairwise(lines):
        names = _PERFTEST_HEADING.findall(heading)
        if heading.lstrip().startswith("#bytes") and name in names and len(row.split()) >= len(names):
            return float(row.split()[names.index(name)])
    raise ValueError(f"no column {name} of perftest in what the tool printed")
