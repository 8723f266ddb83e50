"""`ofl echo serve` and `ofl echo ping`."""

import argparse
import json
import time

from ofl import echo
from ofl.client import connect
from ofl.commands import common


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare both."""
    parts = commands.add_parser("echo", help="the echo service").add_subparsers(
        required=True, metavar="COMMAND"
    )
    serve = parts.add_parser("serve", help="answer every request with its own bytes")
    common.add_listen_options(serve)
    serve.set_defaults(run=_serve)
    ping = parts.add_parser("ping", help="measure round trips to an echo server, from Python")
    ping.add_argument("endpoint", metavar="ENDPOINT", help=common.ENDPOINT)
    ping.add_argument("--size", type=common.whole(0, echo.MAX_FRAME_BYTES), default=64, metavar="BYTES")
    ping.add_argument("--count", type=common.whole(1, 10_000_000), default=1000, metavar="N")
    ping.add_argument("--json", action="store_true", help="print one JSON object")
    common.add_client_options(ping)
    ping.set_defaults(run=_ping)


def _serve(options: argparse.Namespace) -> int:
    stopped = False
    with common.server_of(options, echo.SERVICE, echo.VERSION, echo.MAX_FRAME_BYTES) as server:

        def stop() -> None:
            nonlocal stopped
            stopped = True
            server.wake()

        with common.on_stop_signals(stop):
            common.listen_on(server, options.endpoints, "ofl echo")
            echo.serve_echo(server, stopped=lambda: stopped)
    return 0


def _ping(options: argparse.Namespace) -> int:
    timeout_ns = options.timeout_ms * 1_000_000
    with connect(
        options.endpoint,
        service=echo.SERVICE,
        version_min=echo.VERSION,
        version_max=echo.VERSION,
        max_frame_bytes=echo.MAX_FRAME_BYTES,
        deadline_ns=time.monotonic_ns() + timeout_ns,
        key_file=common.key_of(options),
    ) as client:
        latency = echo.Latency.of(
            echo.ping(client, size=options.size, count=options.count, timeout_ns=timeout_ns)
        )
    row = {name: getattr(latency, f"{name}_ns") / 1000 for name in ("p50", "p90", "p99", "max")}
    if options.json:
        print(json.dumps({"size": options.size, "count": latency.count, "round_trip_us": row}))
    else:
        print(f"{'bytes':>9} {'count':>8} " + " ".join(f"{name + ' us':>10}" for name in row))
        cells = " ".join(f"{value:>10.1f}" for value in row.values())
        print(f"{options.size:>9} {latency.count:>8} {cells}")
    return 0
