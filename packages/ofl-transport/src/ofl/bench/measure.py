"""Measures cases over one connection."""

import ctypes
import struct
import time
from array import array
from concurrent import futures
from dataclasses import dataclass

from ofl import native
from ofl.bench import MAX_FRAME_BYTES, SERVICE, VERSION
from ofl.bench.figures import CPU_TIME, Case, Latency, Result
from ofl.client import Client, connect
from ofl.errors import DeadlineError, PeerLostError, TransportError
from ofl.memory import Buffer

HEARTBEAT_NS = 1_000_000_000
LOSS_NS = 20_000_000_000
"""Rare and patient: heartbeats are not what is measured, and a peer's tool may take every CPU for a while."""
WARM_UPS = 3
COUNT_MIN = 5
COUNT_MAX = 2_000_000
_CPU_TIME = struct.Struct("<IIQ").pack(CPU_TIME, 0, 0)


@dataclass(frozen=True)
class Target:
    """Where to measure, and how.  timeout_ns: of connecting, and of each transfer."""

    endpoint: str
    spin_us: int
    timeout_ns: int
    key_file: str | None = None


class Meter:
    """One connection to a bench server; a context manager.  Raises TransportError as it connects."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._library = native.loaded()
        self.client: Client = connect(
            target.endpoint,
            service=SERVICE,
            version_min=VERSION,
            version_max=VERSION,
            max_frame_bytes=MAX_FRAME_BYTES,
            deadline_ns=time.monotonic_ns() + target.timeout_ns,
            heartbeat_ns=HEARTBEAT_NS,
            loss_ns=LOSS_NS,
            spin_ns=target.spin_us * 1000,
            key_file=target.key_file,
        )
        self._looping = futures.ThreadPoolExecutor(1, "ofl-bench")

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.close()
        self._looping.shutdown()

    def measure(self, case: Case, seconds: float) -> Result:
        """As many transfers as fit into about so many seconds, after a few that show how many those are."""
        memory = self._memory(case)
        each_ns = self._warm_up(case, seconds, memory)
        wanted = min(max(int(seconds * 1e9 / each_ns), COUNT_MIN), COUNT_MAX)
        client_ns, server_ns = time.process_time_ns(), self._server_cpu_ns()
        samples, total_ns = self._run(case, wanted, memory)
        server_ns, client_ns = self._server_cpu_ns() - server_ns, time.process_time_ns() - client_ns
        latency = Latency.of(samples)
        return Result(case, self._target.spin_us, latency, total_ns, client_ns / 1e9, server_ns / 1e9)

    def _warm_up(self, case: Case, seconds: float, memory: Buffer | None) -> float:
        """Nanoseconds of one transfer, from transfers that took a tenth of the time: few say too little."""
        count = case.window
        while True:
            _, elapsed_ns = self._run(case, count, memory)
            if elapsed_ns >= seconds * 1e8 or count >= COUNT_MAX:
                return max(elapsed_ns / count, 1)
            count *= 2

    def first_after_idle(self, case: Case, idle_s: float, times: int) -> Latency:
        """The first transfer after so many seconds of silence."""
        self._run(case, WARM_UPS, None)
        samples = array("q")
        for _ in range(times):
            time.sleep(idle_s)
            samples.extend(self._run(case, 1, None)[0])
        return Latency.of(samples)

    def _memory(self, case: Case) -> Buffer | None:
        if not (case.placed or case.lent):
            return None
        buffer = Buffer(case.nbytes * case.window)
        self.client.register(buffer)
        return buffer

    def _run(self, case: Case, count: int, memory: Buffer | None) -> "tuple[array[int], int]":
        """`count` transfers: the nanoseconds of each, and of all.  Raises TransportError.

        On its own thread, as the library's loop runs no signal handlers; what one of them raises ends the connection.
        """
        samples = array("q", bytes(8 * count))
        address, _ = samples.buffer_info()
        elapsed = ctypes.c_int64()
        loop = self._looping.submit(
            self._library.ofl_bench_run,
            self.client.pointer,
            case.mode,
            case.nbytes,
            count,
            case.window,
            memory.handle.pointer if memory else None,
            self._target.timeout_ns,
            ctypes.cast(address, ctypes.POINTER(ctypes.c_int64)),
            elapsed,
        )
        try:
            status = loop.result()
        except BaseException:
            self.client.close()
            futures.wait([loop])  # until then it writes into the samples
            raise
        if status != native.OK:
            raise _failure(status, self._target, case, self.client)
        return samples, elapsed.value

    def _server_cpu_ns(self) -> int:
        deadline_ns = time.monotonic_ns() + self._target.timeout_ns
        return int.from_bytes(self.client.call([_CPU_TIME], deadline_ns=deadline_ns), "little")


def _failure(status: int, target: Target, case: Case, client: Client) -> TransportError:
    what = f"{target.endpoint}: {case.name} of {case.nbytes} bytes"
    if status == native.UNKNOWN:
        return TransportError(f"{what}: a reply is not what was asked for at its first or last word")
    if status == native.LOST:
        return PeerLostError(f"{what}: {client.reason}")
    if status == native.DEADLINE:
        return DeadlineError(f"{what}: no reply within {target.timeout_ns / 1e9:g} s")
    return TransportError(f"{what}: the library failed with status {status}")
