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


MakePair = Callable[[float, Result], Pair]
"""A tool's processes, given seconds and our own result, from which follows how many transfers fill them."""


@dataclass(frozen=True)
class Comparison:
    """A case of ours beside a tool's.

    how: its arguments, for people.  statistic: what is compared, "p50" or "bytes_per_s".  read: the tool's figure in
    what it printed, nanoseconds of a round trip or bytes a second.
    """

    case: Case
    spin_us: int
    tool: Tool
    how: str
    statistic: str
    pair: MakePair
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
    """All that a tool exists for, echoes first.  host: the address that both ends of a tool use.

    rdma: for the scheme rdma alone.  The bandwidth is compared in one variant: the tool's own.
    """
    tools: _Tools = _TOOLS[scheme](host, rdma)
    made = [one for spin_us in spins_us for size in sizes for one in tools.echoes(size, spin_us)]
    spin_us = max(spins_us) if tools.bulk_looks else min(spins_us)
    return made + [one for size in sizes if size >= BULK_BYTES for one in tools.bulk(size, spin_us)]


def pace(seconds: float, result: Result) -> int:
    """How many transfers, at our speed, take so long."""
    return min(max(int(seconds * 1e9 * result.latency.count / result.elapsed_ns), PACE_MIN), PACE_MAX)


class _Tools:
    """What a scheme is compared with.

    bulk_looks: both ends of the tool for bandwidth look and never sleep.  registers: it sends from registered memory.
    """

    bulk_looks = True
    registers = False

    def __init__(self, host: str, rdma: RdmaPort | None) -> None:
        self.host, self.rdma = host, rdma

    def echoes(self, size: int, spin_us: int) -> Iterator[Comparison]:
        """Round trips of a size."""
        raise NotImplementedError

    def bulk(self, size: int, spin_us: int) -> Iterator[Comparison]:
        """One way, both directions, into memory that was chosen where we can."""
        ways = [Case(Mode.TO_SERVER, size), Case(Mode.TO_CLIENT, size, placed=True)]
        if self.registers:
            ways.insert(1, Case(Mode.TO_SERVER, size, lent=True))
        for case in ways:
            yield Comparison(case, spin_us, *self.stream(size))

    def stream(self, size: int) -> tuple[Tool, str, str, MakePair, Callable[[str], float]]:
        """The tool for bandwidth."""
        raise NotImplementedError


class _Tcp(_Tools):
    bulk_looks = False

    def echoes(self, size: int, spin_us: int) -> Iterator[Comparison]:
        if size not in SOCKPERF_BYTES:
            return
        looking = ["--nonblocked"] if spin_us else []
        where = ["--tcp", "-i", self.host, "-p", "{port}", *looking]

        def pair(seconds: float, _: Result) -> Pair:
            client = ["ping-pong", *where, "--full-rtt", "-m", str(size), "-t", _whole_seconds(seconds)]
            return Pair(SOCKPERF, ["server", *where], client, {})

        how = " ".join(["ping-pong --tcp --full-rtt", *looking])
        read = peer_output.sockperf_round_trip_ns
        yield Comparison(Case(Mode.ECHO, size), spin_us, SOCKPERF, how, "p50", pair, read)

    def stream(self, size: int) -> tuple[Tool, str, str, MakePair, Callable[[str], float]]:
        port = ["-lp", "{port}"]

        def pair(seconds: float, _: Result) -> Pair:
            client = [*port, "-t", _whole_seconds(seconds), "-m", str(size), "-uu", self.host, "tcp_bw"]
            return Pair(QPERF, port, client, {})

        return QPERF, "tcp_bw", "bytes_per_s", pair, peer_output.qperf_bytes_per_s


class _Shm(_Tools):
    def echoes(self, size: int, spin_us: int) -> Iterator[Comparison]:
        if size == 0:
            return
        sleeping = [] if spin_us else ["-E", "sleep"]
        pair = self._pair("tag_lat", size, sleeping)
        how = " ".join(["-t tag_lat, doubled", *sleeping])
        read = peer_output.ucx_round_trip_ns
        yield Comparison(Case(Mode.ECHO, size), spin_us, UCX, how, "p50", pair, read)

    def stream(self, size: int) -> tuple[Tool, str, str, MakePair, Callable[[str], float]]:
        pair = self._pair("tag_bw", size, [])
        return UCX, "-t tag_bw", "bytes_per_s", pair, peer_output.ucx_bytes_per_s

    def _pair(self, test: str, size: int, sleeping: Sequence[str]) -> MakePair:
        port = ["-p", "{port}"]

        def pair(seconds: float, ours: Result) -> Pair:
            count = pace(seconds, ours)
            counts = ["-n", str(count), "-w", str(max(count // 10, 1))]
            client = [self.host, *port, "-t", test, "-s", str(size), *counts, *sleeping, "-f", "-v"]
            return Pair(UCX, port, client, {"UCX_TLS": "shm,self"})

        return pair


class _Rdma(_Tools):
    bulk_looks = False
    """Of ib_write_bw one end looks and the other rests until all is over."""
    registers = True

    def echoes(self, size: int, spin_us: int) -> Iterator[Comparison]:
        if size == 0:
            return
        sleeping = [] if spin_us else ["--events"]
        how = " ".join(["doubled", *sleeping])
        # ib_write_lat watches memory; it cannot sleep.
        for tool in (IB_SEND_LAT, IB_WRITE_LAT) if spin_us else (IB_SEND_LAT,):
            pair = self._pair(tool, size, sleeping)
            read = peer_output.perftest_round_trip_ns
            yield Comparison(Case(Mode.ECHO, size), spin_us, tool, how, "p50", pair, read)

    def stream(self, size: int) -> tuple[Tool, str, str, MakePair, Callable[[str], float]]:
        pair = self._pair(IB_WRITE_BW, size, [])
        return IB_WRITE_BW, "", "bytes_per_s", pair, peer_output.perftest_bytes_per_s

    def _pair(self, tool: Tool, size: int, sleeping: Sequence[str]) -> MakePair:
        assert self.rdma is not None, "perftest is told the device"
        device = ["-d", self.rdma.device, "-i", str(self.rdma.port), "-x", str(self.rdma.gid_index)]

        def pair(seconds: float, ours: Result) -> Pair:
            count = str(pace(seconds, ours))
            both = [*device, "-s", str(size), "-n", count, "-p", "{port}", "-F", *sleeping]
            return Pair(tool, both, [*both, self.host], {})

        return pair


def _whole_seconds(seconds: float) -> str:
    return str(max(1, round(seconds)))


_TOOLS: dict[str, type[_Tools]] = {"tcp": _Tcp, "shm": _Shm, "rdma": _Rdma}
