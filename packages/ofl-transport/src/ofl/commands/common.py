"""What commands share: arguments that are checked where they are parsed, and servers that end on a signal."""

import argparse
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ofl.server import Server

FAILED = 1
MISUSED = 2
ENDPOINT = "tcp://host:port?bind=address, rdma://host:port?bind=address or shm://name"


class Misuse(Exception):
    """The command line asks for what cannot be; the text is one sentence.  Exit status 2."""


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser for whole numbers of a range."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return value

    return parse


def seconds(low: float, high: float) -> Callable[[str], float]:
    """A parser for seconds of a range."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:  # false for NaN too
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {low:g} to {high:g}")
        return value

    return parse


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """--timeout-ms and --key-file."""
    parser.add_argument(
        "--timeout-ms", type=whole(1, 600_000), default=2000, metavar="MS", help="default %(default)s"
    )
    add_key_file(parser)


def add_key_file(parser: argparse.ArgumentParser) -> None:
    """--key-file."""
    parser.add_argument("--key-file", metavar="FILE", help="both sides must hold this key (see `ofl keygen`)")


def add_listen_options(parser: argparse.ArgumentParser) -> None:
    """What a server listens on and whom it lets in."""
    parser.add_argument(
        "endpoints",
        nargs="+",
        metavar="ENDPOINT",
        help="tcp://address:port, rdma://address:port or shm://name; port 0 picks one",
    )
    parser.add_argument("--allow-any", action="store_true", help="allow wildcard addresses")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="PREFIX",
        help="clients must come from there: an address, or a prefix as 10.0.0.0/24; repeatable; without: any",
    )
    add_key_file(parser)


def server_of(options: argparse.Namespace, service: str, version: int, max_frame_bytes: int) -> Server:
    """A server as `add_listen_options` lets it be asked for.  spin_us, where given, becomes spin_ns."""
    spin_us: int | None = getattr(options, "spin_us", None)
    return Server(
        service,
        version_min=version,
        version_max=version,
        max_frame_bytes=max_frame_bytes,
        allow_any=options.allow_any,
        allowed=options.allow,
        key_file=options.key_file,
        spin_ns=None if spin_us is None else spin_us * 1000,
    )


def listen_on(server: Server, endpoints: Sequence[str], what: str) -> None:
    """Listen, and say so: one line each, flushed, for whoever waits for it."""
    for endpoint in endpoints:
        print(f"{what}: listening on {server.listen(endpoint)}", flush=True)


@contextmanager
def on_stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """While open, SIGINT and SIGTERM call stop."""

    def note(_number: int, _frame: object) -> None:
        stop()

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def key_of(options: argparse.Namespace) -> str | os.PathLike[str] | None:
    """The key file that was asked for."""
    given: str | None = options.key_file
    return given
