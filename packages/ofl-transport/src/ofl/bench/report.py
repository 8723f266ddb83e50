"""The results as aligned tables for people, and as JSON values for programs.  Pure."""

from collections.abc import Sequence
from typing import Any

from ofl.bench.compare import Compared
from ofl.bench.figures import Latency, Result

PERCENTILES = ("min", "p50", "p90", "p99", "p999", "max")
_TITLES = {"p999": "p99.9"}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of columns: the first to the left, the others to the right."""
    lines = [list(headings), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def results_table(results: Sequence[Result]) -> str:
    """One row a case; times in microseconds."""
    headings = ["", "bytes", "spin us", "count", *(f"{_TITLES.get(name, name)} us" for name in PERCENTILES)]
    headings += ["MB/s", "client CPU s", "server CPU s"]
    return table(headings, [_row(result) for result in results])


def _row(result: Result) -> list[str]:
    case = result.case
    return [
        case.name,
        str(case.nbytes),
        str(result.spin_us),
        str(result.latency.count),
        *(f"{value:.1f}" for value in _times_us(result.latency).values()),
        f"{result.bytes_per_s / 1e6:.1f}",
        f"{result.client_cpu_s:.3f}",
        f"{result.server_cpu_s:.3f}",
    ]


def idle_line(latency: Latency, idle_s: float, spin_us: int) -> str:
    """The first call after silence."""
    times = _times_us(latency)
    return (
        f"first call after {idle_s:g} s of silence (spin {spin_us} us, {latency.count} times): "
        f"min {times['min']:.1f} us, p50 {times['p50']:.1f} us, max {times['max']:.1f} us"
    )


def compared_table(compared: Sequence[Compared]) -> str:
    """One row a comparison: best and worst round of each side, ratio of the best."""
    headings = ["", "bytes", "spin us", "unit", "ofl best", "worst", "peer best", "worst", "ratio", "peer"]
    return table(headings, [_compared_row(one) for one in compared])


def _compared_row(one: Compared) -> list[str]:
    comparison = one.comparison
    unit, scale = ("MB/s", 1e6) if comparison.higher_is_better else ("us p50", 1e3)
    figures = (one.best(one.ours), one.worst(one.ours), one.best(one.peers), one.worst(one.peers))
    return [
        comparison.case.name,
        str(comparison.case.nbytes),
        str(comparison.spin_us),
        unit,
        *(f"{figure / scale:.2f}" for figure in figures),
        f"{one.ratio:.2f}",
        f"{comparison.tool.command} {comparison.how}".rstrip(),
    ]


def result_json(result: Result) -> dict[str, Any]:
    """One case; times in microseconds."""
    return {
        "case": result.case.name,
        "bytes": result.case.nbytes,
        "window": result.case.window,
        "spin_us": result.spin_us,
        "count": result.latency.count,
        "us": _times_us(result.latency) | {"mean": result.latency.mean_ns / 1000},
        "elapsed_s": result.elapsed_ns / 1e9,
        "bytes_per_s": result.bytes_per_s,
        "client_cpu_s": result.client_cpu_s,
        "server_cpu_s": result.server_cpu_s,
    }


def idle_json(latency: Latency, idle_s: float, spin_us: int) -> dict[str, Any]:
    """The first call after silence."""
    return {"idle_s": idle_s, "spin_us": spin_us, "count": latency.count, "us": _times_us(latency)}


def compared_json(one: Compared) -> dict[str, Any]:
    """One comparison, every round of it."""
    comparison = one.comparison
    return {
        "case": comparison.case.name,
        "bytes": comparison.case.nbytes,
        "spin_us": comparison.spin_us,
        "unit": "bytes_per_s" if comparison.higher_is_better else "ns",
        "statistic": comparison.statistic,
        "ofl": list(one.ours),
        "peer": list(one.peers),
        "peer_tool": f"{comparison.tool.command} {comparison.how}".rstrip(),
        "ratio": one.ratio,
    }


def _times_us(latency: Latency) -> dict[str, float]:
    return {name: getattr(latency, f"{name}_ns") / 1000 for name in PERCENTILES}
