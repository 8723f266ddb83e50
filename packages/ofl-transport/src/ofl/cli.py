"""The `ofl` command.  Exit status: 0 worked, 1 failed, 2 used wrongly.  Errors are one sentence."""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from ofl import __version__, echo, probe
from ofl.client import connect
from ofl.errors import EndpointError, TransportError
from ofl.server import Server

_FAILED = 1
_MISUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        status = run(options)
        sys.stdout.flush()
        return status
    except EndpointError as error:
        return _complain(str(error), _MISUSED)
    except (TransportError, ImportError, ValueError) as error:
        return _complain(str(error), _FAILED)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (
        BrokenPipeError
    ):  # whoever read our output has enough; nothing more may be written, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED


def _complain(sentence: str, status: int) -> int:
    print(f"ofl: {sentence}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ofl", description="Spark Offload's transport: look and measure.")
    parser.add_argument("--version", action="version", version=f"ofl {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_probe(
        commands.add_parser("probe", help="what this build and this host can do, and the way to a peer")
    )
    echo_commands = commands.add_parser("echo", help="the echo service").add_subparsers(
        required=True, metavar="COMMAND"
    )
    _add_serve(echo_commands.add_parser("serve", help="answer every request with its own bytes"))
    _add_ping(echo_commands.add_parser("ping", help="measure round trips to an echo server"))
    return parser


def _add_probe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("endpoint", nargs="?", help="tcp://host:port?bind=address")
    parser.add_argument("--connect", action="store_true", help="connect once and negotiate")
    parser.add_argument("--service", default=echo.SERVICE, help="service to ask for (default %(default)s)")
    parser.add_argument("--service-version", type=_count(0, 65535), default=echo.VERSION, metavar="N")
    parser.add_argument("--timeout-ms", type=_count(1, 600_000), default=2000, metavar="MS")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_run_probe)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "endpoints", nargs="+", metavar="ENDPOINT", help="tcp://address:port; port 0 picks one"
    )
    parser.add_argument("--allow-any", action="store_true", help="allow wildcard addresses")
    parser.set_defaults(run=_run_serve)


def _add_ping(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("endpoint", help="tcp://host:port?bind=address")
    parser.add_argument("--size", type=_count(0, echo.MAX_FRAME_BYTES), default=64, metavar="BYTES")
    parser.add_argument("--count", type=_count(1, 10_000_000), default=1000, metavar="N")
    parser.add_argument("--timeout-ms", type=_count(1, 600_000), default=2000, metavar="MS")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_run_ping)


def _count(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return value

    return parse


def _run_probe(options: argparse.Namespace) -> int:
    if options.connect and not options.endpoint:
        return _complain("--connect needs an ENDPOINT", _MISUSED)
    report = probe.host_report()
    good = True
    if options.endpoint:
        report["route"] = probe.endpoint_report(options.endpoint)
        good = report["route"]["ok"]
    if options.connect and good:
        report["connect"] = probe.connect_report(
            options.endpoint,
            service=options.service,
            version=options.service_version,
            timeout_ns=options.timeout_ms * 1_000_000,
        )
        good = report["connect"]["ok"]
    print(probe.render_json(report) if options.json else probe.render(report))
    return 0 if good else _FAILED


def _run_serve(options: argparse.Namespace) -> int:
    stopped = False
    with Server(
        echo.SERVICE,
        version_min=echo.VERSION,
        version_max=echo.VERSION,
        max_frame_bytes=echo.MAX_FRAME_BYTES,
        allow_any=options.allow_any,
    ) as server:

        def stop(_number: int, _frame: object) -> None:
            nonlocal stopped
            stopped = True
            server.wake()

        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        for endpoint in options.endpoints:
            print(f"ofl echo: listening on {server.listen(endpoint)}", flush=True)
        echo.serve_echo(server, stopped=lambda: stopped)
        return 0


def _run_ping(options: argparse.Namespace) -> int:
    timeout_ns = options.timeout_ms * 1_000_000
    with connect(
        options.endpoint,
        service=echo.SERVICE,
        version_min=echo.VERSION,
        version_max=echo.VERSION,
        max_frame_bytes=echo.MAX_FRAME_BYTES,
        deadline_ns=time.monotonic_ns() + timeout_ns,
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
