"""What a measurement is and what it says.  Pure."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ofl.bench import MAX_BYTES

SIZES = ("0", "8", "64", "512", "4096", "75000", "1M", "13M")
KINDS = ("echo", "to-server", "lent", "to-client", "placed")
WINDOW_MAX = 8
WINDOW_BYTES_MAX = 1 << 24
_SIZE = re.compile(r"([0-9]{1,10})([KM]?)", re.ASCII)


class Mode(IntEnum):
    """What is measured, as the library numbers it (ofl_bench_mode)."""

    ECHO = 1
    TO_SERVER = 2
    TO_CLIENT = 3


CPU_TIME = 4
"""The mode of a request that is answered with the CPU time of the server's process; nothing that is measured."""


@dataclass(frozen=True)
class Case:
    """One thing to measure.  alone: one at a time.

    placed: the reply lands in memory that the client registered.  lent: the request is sent from such memory.
    """

    mode: Mode
    nbytes: int
    placed: bool = False
    alone: bool = False
    lent: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return ", ".join([self.mode.name.lower().replace("_", " "), *self._how])

    @property
    def kind(self) -> str:
        """For the command line, one of KINDS."""
        return (*self._how, self.mode.name.lower().replace("_", "-"))[0]

    @property
    def _how(self) -> tuple[str, ...]:
        return ("placed",) * self.placed + ("lent",) * self.lent

    @property
    def window(self) -> int:
        """Transfers open at once: one for an echo; else what keeps the wire busy and the memory small.

        Transfers that are placed or lent each have memory of their own, where peers use the same again and again.
        """
        if self.mode is Mode.ECHO or self.alone:
            return 1
        return max(2, min(WINDOW_MAX, WINDOW_BYTES_MAX // max(self.nbytes, 1)))


@dataclass(frozen=True)
class Latency:
    """Nearest-rank percentiles in nanoseconds."""

    count: int
    min_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    mean_ns: float

    @classmethod
    def of(cls, samples_ns: Sequence[int]) -> "Latency":
        """Of at least one sample."""
        ordered = sorted(samples_ns)
        count = len(ordered)

        def rank(per_mille: int) -> int:
            return ordered[math.ceil(per_mille * count / 1000) - 1]

        return cls(
            count, ordered[0], rank(500), rank(900), rank(990), rank(999), ordered[-1], sum(ordered) / count
        )


@dataclass(frozen=True)
class Result:
    """One case, measured.  spin_us: of both ends, as far as known.  elapsed_ns: of all transfers together.

    client_cpu_s, server_cpu_s: CPU time of each process while it was measured, all threads.
    """

    case: Case
    spin_us: int
    latency: Latency
    elapsed_ns: int
    client_cpu_s: float
    server_cpu_s: float

    @property
    def bytes_per_s(self) -> float:
        """Of the bodies, one way; an echo moves them both ways and counts them once."""
        return self.case.nbytes * self.latency.count * 1e9 / self.elapsed_ns


def parse_size(text: str) -> int:
    """Bytes: a whole number, K = 1024, M = 1024 * 1024.  Raises ValueError."""
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2]] if match else -1
    if not 0 <= size <= MAX_BYTES:
        raise ValueError(f"size {text!r} is not a whole number of bytes (or K, M) up to {MAX_BYTES}")
    return size


def cases(sizes: Sequence[int]) -> list[Case]:
    """Everything that is measured for these sizes: echoes first, then each way.  Nothing moves 0 bytes one way."""
    echoes = [Case(Mode.ECHO, size) for size in sizes]
    moved = [size for size in sizes if size > 0]
    return [
        *echoes,
        *(Case(Mode.TO_SERVER, size) for size in moved),
        *(Case(Mode.TO_SERVER, size, lent=True) for size in moved),
        *(Case(Mode.TO_CLIENT, size) for size in moved),
        *(Case(Mode.TO_CLIENT, size, placed=True) for size in moved),
    ]
