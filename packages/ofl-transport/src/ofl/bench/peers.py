"""Which tool is measured beside which case, and with which arguments.  Starts nothing.

Like is compared with like: where our ends look for a reply before they sleep, so does the peer; where ours sleep,
so does the peer, as far as the tool can.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ofl.bench import peer_output
from ofl.bench.figures import Case, Mode, Result
from ofl.bench.pairs import Pair, Tool

SOCKPERF = Tool("sockperf", "sockperf")
QPERF = Tool("qperf", "qperf")
UCX = Tool("ucx_perftest", "ucx-utils")
IB_SEND_LAT = Tool("ib_send_lat", "perftest")
IB_WRITE_LAT = Tool("ib_write_lat", "perftest")
IB_WRITE_BW = Tool("ib_write_bw", "perftest")

SOCKPERF_BYTES = range(14, 65507)
"""Sizes of a message that sockperf takes."""
BULK_BYTES = 65536
"""From here on the bandwidth is compared."""
PACE_MIN = 5
PACE_MAX = 1_000_000


@dataclass(frozen=True)
class RdmaPort:
    """Where perftest measures; what our own end chose for the same address."""

    device: str
    port: int
    gid_index: int


@dataclass(frozen=True)
class Comparison:
    """A case of ours beside a tool's.

    pair: its processes, given seconds and our last result, from which follows how many transfers fill them.
    read: its figure, nanoseconds of a round trip or bytes a second.  statistic: of our Result, the same.
    """

    case: Case
    spin_us: int
    tool: Tool
    how: str
    statistic: str
    pair: Callable[[float, Result], Pair]
    read: Callable[[str], float]

    @property
    def higher_is_better(self) -> bool:
        """True for bandwidth."""
        return self.statistic == "bytes_per_s"

    def ours(self, result: Result) -> float:
        """Our figure."""
        return result.bytes_per_s if self.higher_is_better else float(result.latency.p50_ns)


def comparisons(
    scheme: str, host: str, sizes: Sequence[int], spins_us: Sequence[int], rdma: RdmaPort | None = None
) -> list[Comparison]:
    """All that a tool exists for, echoes first.  host: the address that both ends of a tool use."""
    made: list[Comparison] = []
    for spin_us in spins_us:
        made += [one for size in sizes for one in _echoes(scheme, host, size, spin_us, rdma)]
    # A stream that never stands still has nothing to sleep for: once is enough.
    spin_us = min(spins_us)
    return made + [
        one for size in sizes if size >= BULK_BYTES for one in _bulk(scheme, host, size, spin_us, rdma)
    ]


def pace(seconds: float, result: Result) -> int:
    """How many transfers, at our speed, take so long."""
    return min(max(int(seconds * 1e9 * result.latency.count / result.elapsed_ns), PACE_MIN), PACE_MAX)


def _echoes(scheme: str, host: str, size: int, spin_us: int, rdma: RdmaPort | None) -> Iterator[Comparison]:
    case = Case(Mode.ECHO, size)
    if scheme == "tcp" and size in SOCKPERF_BYTES:
        looking = ["--nonblocked"] if spin_us else []
        how = " ".join(["ping-pong --tcp --full-rtt", *looking])
        yield Comparison(
            case,
            spin_us,
            SOCKPERF,
            how,
            "p50",
            lambda seconds, _: _sockperf(host, size, seconds, looking),
            peer_output.sockperf_round_trip_ns,
        )
    if scheme == "shm" and size > 0:
        sleeping = [] if spin_us else ["-E", "sleep"]
        yield Comparison(
            case,
            spin_us,
            UCX,
            " ".join(["-t tag_lat, doubled", *sleeping]),
            "p50",
            lambda seconds, ours: _ucx("tag_lat", size, pace(seconds, ours), sleeping),
            peer_output.ucx_round_trip_ns,
        )
    if scheme == "rdma" and size > 0 and rdma is not None:
        sleeping = [] if spin_us else ["--events"]
        # ib_write_lat watches memory; it cannot sleep.
        for tool in (IB_SEND_LAT, IB_WRITE_LAT) if spin_us else (IB_SEND_LAT,):
            yield Comparison(
                case,
                spin_us,
                tool,
                " ".join(["doubled", *sleeping]),
                "p50",
                lambda seconds, ours, tool=tool: _perftest(  # type: ignore[misc]
                    tool, host, size, pace(seconds, ours), rdma, sleeping
                ),
                peer_output.perftest_round_trip_ns,
            )


def _bulk(scheme: str, host: str, size: int, spin_us: int, rdma: RdmaPort | None) -> Iterator[Comparison]:
    ways = [Case(Mode.TO_SERVER, size), Case(Mode.TO_CLIENT, size, placed=True)]
    for case in ways:
        if scheme == "tcp":
            yield Comparison(
                case,
                spin_us,
                QPERF,
                "tcp_bw",
                "bytes_per_s",
                lambda seconds, _: _qperf(host, size, seconds),
                peer_output.qperf_bytes_per_s,
            )
        if scheme == "shm":
            yield Comparison(
                case,
                spin_us,
                UCX,
                "-t tag_bw",
                "bytes_per_s",
                lambda seconds, ours: _ucx("tag_bw", size, pace(seconds, ours), []),
                peer_output.ucx_bytes_per_s,
            )
        if scheme == "rdma" and rdma is not None:
            yield Comparison(
                case,
                spin_us,
                IB_WRITE_BW,
                "",
                "bytes_per_s",
                lambda seconds, ours: _perftest(IB_WRITE_BW, host, size, pace(seconds, ours), rdma, []),
                peer_output.perftest_bytes_per_s,
            )


def _sockperf(host: str, size: int, seconds: float, looking: Sequence[str]) -> Pair:
    where = ["--tcp", "-i", host, "-p", "{port}", *looking]
    client = ["ping-pong", *where, "--full-rtt", "-m", str(size), "-t", str(max(1, round(seconds)))]
    return Pair(SOCKPERF, ["server", *where], client, {})


def _qperf(host: str, size: int, seconds: float) -> Pair:
    port = ["-lp", "{port}"]
    client = [*port, "-t", str(max(1, round(seconds))), "-m", str(size), "-uu", host, "tcp_bw"]
    return Pair(QPERF, port, client, {})


def _ucx(test: str, size: int, count: int, sleeping: Sequence[str]) -> Pair:
    port = ["-p", "{port}"]
    counts = ["-n", str(count), "-w", str(max(count // 10, 1))]
    client = ["127.0.0.1", *port, "-t", test, "-s", str(size), *counts, *sleeping, "-f", "-v"]
    return Pair(UCX, port, client, {"UCX_TLS": "shm,self"})


def _perftest(tool: Tool, host: str, size: int, count: int, rdma: RdmaPort, sleeping: Sequence[str]) -> Pair:
    device = ["-d", rdma.device, "-i", str(rdma.port), "-x", str(rdma.gid_index)]
    both = [*device, "-s", str(size), "-n", str(count), "-p", "{port}", "-F", *sleeping]
    return Pair(tool, both, [*both, host], {})
