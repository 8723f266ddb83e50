"""Echo round trips over ofl against a raw blocking-socket ping-pong, both in Python, alternating in one run.

    python benchmarks/echo.py [--seconds S] [--rounds N] [--json]

Each server is its own process on loopback.  For each size: `rounds` alternating measurements of each kind; printed
are the best p50 of each and their ratio (ours / raw).  The raw peer knows the size in advance, sends no header and has
no deadlines: it is the floor for two Python processes, not a competitor.
"""

import argparse
import json
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from ofl.client import Client, connect
from ofl.echo import SERVICE, VERSION, serve_echo
from ofl.server import Server

SIZES = (64, 4096, 75_000, 1 << 20)
LIMIT = 1 << 22


def serve_ofl(report: Connection) -> None:
    with Server(SERVICE, version_min=VERSION, version_max=VERSION, max_frame_bytes=LIMIT) as server:
        report.send(server.listen("tcp://127.0.0.1:0"))
        serve_echo(server, stopped=lambda: False)


def serve_raw(report: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        report.send(listener.getsockname()[1])
        for size in SIZES:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            buffer = memoryview(bytearray(size))
            with connection:
                while receive(connection, buffer):
                    connection.sendall(buffer)


def receive(connection: socket.socket, buffer: memoryview) -> bool:
    """Fill the buffer; False at the end of the stream."""
    at = 0
    while at < len(buffer):
        got = connection.recv_into(buffer[at:])
        if got == 0:
            return False
        at += got
    return True


def median_us(trip: Callable[[], object], seconds: float) -> float:
    """The median duration of as many round trips as fit, in microseconds."""
    samples = []
    end = time.monotonic_ns() + int(seconds * 1e9)
    while (begun := time.monotonic_ns()) < end:
        trip()
        samples.append(time.monotonic_ns() - begun)
    return statistics.median(samples) / 1000


def measure(client: Client, raw_port: int, size: int, *, seconds: float, rounds: int) -> dict[str, float]:
    """Best of the alternating rounds for one size."""
    payload = bytes(size)
    buffer = memoryview(bytearray(size))
    ours, raw = [], []
    with socket.create_connection(("127.0.0.1", raw_port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def raw_trip() -> None:
            connection.sendall(payload)
            receive(connection, buffer)

        def our_trip() -> None:
            client.call([payload], deadline_ns=time.monotonic_ns() + 10**10)

        for _ in range(rounds):
            ours.append(median_us(our_trip, seconds))
            raw.append(median_us(raw_trip, seconds))
    return {"bytes": size, "ofl_us": min(ours), "raw_us": min(raw), "ratio": min(ours) / min(raw)}


def start(target: Callable[[Connection], None]) -> tuple[multiprocessing.process.BaseProcess, object]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs,), daemon=True)
    process.start()
    return process, ours.recv()


def main() -> None:
    parser = argparse.ArgumentParser(description="ofl echo against a raw-socket ping-pong")
    parser.add_argument(
        "--seconds", type=float, default=0.4, help="of each measurement (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="alternations (default %(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ofl_process, endpoint = start(serve_ofl)
    raw_process, port = start(serve_raw)
    assert isinstance(endpoint, str)
    assert isinstance(port, int)
    deadline_ns = time.monotonic_ns() + 10**10
    rows = []
    with connect(
        endpoint,
        service=SERVICE,
        version_min=VERSION,
        version_max=VERSION,
        max_frame_bytes=LIMIT,
        deadline_ns=deadline_ns,
    ) as client:
        for size in SIZES:
            rows.append(measure(client, port, size, seconds=options.seconds, rounds=options.rounds))
            if not options.json:
                print(
                    "{bytes:>9} bytes: ofl {ofl_us:9.1f} us, raw {raw_us:9.1f} us, ratio {ratio:5.2f}".format(
                        **rows[-1]
                    )
                )
    if options.json:
        print(json.dumps(rows))
    for process in (ofl_process, raw_process):
        process.kill()


if __name__ == "__main__":
    main()
