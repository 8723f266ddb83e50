"""`ofl bench` and `ofl bench serve`."""

import argparse
import json
import os
import select
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from ofl import bench, hostinfo, native, rdma_devices, settings
from ofl.bench import figures, own_server, peers, report
from ofl.bench.compare import Compared, compare
from ofl.bench.measure import Meter, Target
from ofl.commands import common
from ofl.endpoint import SCHEMES, Endpoint, parse_endpoint
from ofl.errors import EndpointError, TransportError
from ofl.server import Server

COMPARED_SIZES = ("64", "4096", "75000", "13M")
COMPARED_SPIN_US = 1000
"""The tools that look never sleep; with this, neither do our ends on a wire that is well."""
IDLE_TIMES = 5
_COMMANDS = ("run", "serve", "-h", "--help")


def with_default_command(arguments: Sequence[str]) -> list[str]:
    """`ofl bench TARGET` means `ofl bench run TARGET`."""
    given = list(arguments)
    if given[:1] == ["bench"] and given[1:] and given[1] not in _COMMANDS:
        given.insert(1, "run")
    return given


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare both."""
    measuring = (
        "ofl bench [run] TARGET [options]"  # after --sizes and --only a TARGET would be one more of theirs
    )
    parser = commands.add_parser(
        "bench",
        help="measure a connection, also beside sockperf, qperf, ucx_perftest or perftest",
        usage=f"{measuring}, or ofl bench serve ENDPOINT [ENDPOINT ...] [options]",
    )
    parts = parser.add_subparsers(required=True, metavar="COMMAND", prog="ofl bench")
    _add_run(parts.add_parser("run", help="measure; the word may be left out", usage=measuring))
    serve = parts.add_parser("serve", help="the other end, for a TARGET on another host")
    common.add_listen_options(serve)
    _add_spin(serve, repeatable=False)
    serve.add_argument("--until-eof", action="store_true", help="end with the standard input, too")
    serve.set_defaults(run=_serve)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="the endpoint of a running `ofl bench serve`; or tcp, shm, rdma, or an endpoint with port 0: "
        "then it starts a server process of its own there",
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=_size,
        metavar="BYTES",
        help=f"default {' '.join(figures.SIZES)}; with --compare {' '.join(COMPARED_SIZES)}",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=figures.KINDS,
        default=figures.KINDS,
        help="what to measure; default: all",
    )
    _add_spin(parser, repeatable=True)
    parser.add_argument("--seconds", type=common.seconds(0.01, 600), default=None, help="of each measurement")
    parser.add_argument(
        "--idle-s",
        type=common.seconds(0, 3600),
        default=1.0,
        metavar="S",
        help=f"silence before a first call, {IDLE_TIMES} times; 0: not measured (default %(default)s)",
    )
    parser.add_argument(
        "--compare", action="store_true", help="measure ours and the peers' tools in turn; own server only"
    )
    parser.add_argument(
        "--rounds", type=common.whole(1, 1000), default=5, help="of a comparison (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--timeout-ms", type=common.whole(1, 600_000), default=10_000, metavar="MS", help="of each transfer"
    )
    common.add_key_file(parser)
    parser.set_defaults(run=_run)


def _add_spin(parser: argparse.ArgumentParser, *, repeatable: bool) -> None:
    default = "OFL_SPIN_US"
    if repeatable:
        default = f"OFL_SPIN_US ({COMPARED_SPIN_US} with --compare) and 0; repeatable"
    parser.add_argument(
        "--spin-us",
        type=common.whole(0, 1_000_000),
        action="append" if repeatable else "store",
        metavar="US",
        help=f"how long a wait looks before it sleeps; 0: it sleeps at once; default: {default}",
    )


def _size(text: str) -> int:
    try:
        return figures.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# --- the end that answers ---


def _serve(options: argparse.Namespace) -> int:
    if options.until_eof and sys.stdin is None:
        raise common.Misuse("--until-eof needs a standard input, and it is closed")
    with ExitStack() as stack:
        server = stack.enter_context(
            common.server_of(options, bench.SERVICE, bench.VERSION, bench.MAX_FRAME_BYTES)
        )
        ended, end = os.pipe()
        stack.callback(os.close, ended)
        stack.callback(os.close, end)
        stack.enter_context(common.on_stop_signals(lambda: _wake(end)))
        common.listen_on(server, options.endpoints, "ofl bench")
        statuses: list[int] = []
        answering = threading.Thread(target=_answer, args=(server, end, statuses))
        answering.start()
        watched = [ended, *([sys.stdin.fileno()] if options.until_eof else [])]
        select.select(watched, [], [])
        server.wake()
        answering.join()
    if statuses != [native.OK]:
        raise TransportError(f"the bench server failed with status {statuses}")
    return 0


def _wake(end: int) -> None:
    os.write(end, b"x")


def _answer(server: Server, end: int, statuses: list[int]) -> None:
    """On its own thread: the library's loop runs no signal handlers."""
    statuses.append(native.loaded().ofl_bench_serve(server.pointer))
    _wake(end)


# --- the end that measures ---


def _run(options: argparse.Namespace) -> int:
    endpoint, own = _target(options.target)
    if options.compare and not own:
        raise common.Misuse(
            "--compare starts the servers of both sides, so TARGET must be tcp, shm, rdma or have port 0"
        )
    looking_us = COMPARED_SPIN_US if options.compare else settings.SPIN.ns() // 1000
    spins = list(dict.fromkeys(options.spin_us or [looking_us, 0]))
    if options.compare:
        return _run_compare(options, endpoint, spins)
    sizes = options.sizes or [figures.parse_size(text) for text in figures.SIZES]
    document: dict[str, Any] = {"target": str(endpoint), "results": [], "first_after_idle": []}
    for spin_us in spins:
        with _meter(options, endpoint, own, spin_us) as meter:
            document["wire"] = meter.client.peer.wire
            document["authenticated"] = meter.client.peer.authenticated
            cases = [case for case in figures.cases(sizes) if case.kind in options.only]
            results = [meter.measure(case, options.seconds or 0.3) for case in cases]
            document["results"] += map(report.result_json, results)
            if not options.json:
                print(f"{meter.client.peer.endpoint} over {meter.client.peer.wire}, spin {spin_us} us")
                print(report.results_table(results), flush=True)
            if options.idle_s > 0:
                _first_after_idle(options, meter, spin_us, document)
    if options.json:
        print(json.dumps(document))
    return 0


def _first_after_idle(
    options: argparse.Namespace, meter: Meter, spin_us: int, document: dict[str, Any]
) -> None:
    case = figures.Case(figures.Mode.ECHO, 64)
    latency = meter.first_after_idle(case, options.idle_s, IDLE_TIMES)
    document["first_after_idle"].append(report.idle_json(latency, options.idle_s, spin_us))
    if not options.json:
        print(report.idle_line(latency, options.idle_s, spin_us), flush=True)


def _run_compare(options: argparse.Namespace, endpoint: Endpoint, spins: Sequence[int]) -> int:
    sizes = options.sizes or [figures.parse_size(text) for text in COMPARED_SIZES]
    host = "127.0.0.1" if endpoint.scheme == "shm" else endpoint.host
    wanted = [
        one
        for one in peers.comparisons(endpoint.scheme, host, sizes, spins, _rdma_port(endpoint))
        if one.case.kind in options.only
    ]
    missing = sorted({one.tool.missing for one in wanted} - {""})
    possible = [one for one in wanted if not one.tool.missing]
    done: list[Compared] = []
    failures: list[str] = []
    for spin_us in spins:
        of_spin = [one for one in possible if one.spin_us == spin_us]
        if not of_spin:
            continue
        with _meter(options, endpoint, True, spin_us) as meter:
            for one in of_spin:
                measure = partial(meter.measure, one.case)
                try:
                    done.append(compare(one, measure, rounds=options.rounds, seconds=options.seconds or 1.0))
                except TransportError as error:
                    failures.append(f"{one.case.name} of {one.case.nbytes} bytes: {error}")
    if options.json:
        document = {"target": str(endpoint), "compared": list(map(report.compared_json, done))}
        print(json.dumps(document | {"missing": missing, "failures": failures}))
    elif done:
        print(report.compared_table(done))
    for sentence in (*missing, *failures):
        print(f"ofl: {sentence}", file=sys.stderr)
    return 0 if done and not failures else common.FAILED


@contextmanager
def _meter(options: argparse.Namespace, endpoint: Endpoint, own: bool, spin_us: int) -> Iterator[Meter]:
    """A connection to the server there, or to one that is started there and ends afterwards."""
    with ExitStack() as stack:
        bound = str(endpoint)
        if own:
            bound = stack.enter_context(
                own_server.own_server(bound, spin_us=spin_us, key_file=options.key_file)
            )
        target = Target(bound, spin_us, options.timeout_ms * 1_000_000, options.key_file)
        yield stack.enter_context(Meter(target))


def _target(text: str) -> tuple[Endpoint, bool]:
    """Where to measure, and whether the server there is ours to start."""
    if text == "tcp":
        return Endpoint("tcp", "127.0.0.1"), True
    if text == "shm":
        return parse_endpoint(own_server.free_name()), True
    if text == "rdma":
        return Endpoint("rdma", _rdma_address()), True
    if text.partition("://")[0] not in SCHEMES:
        raise EndpointError(f"target {text!r} is none of tcp, shm, rdma, and no endpoint")
    endpoint = parse_endpoint(text)
    return endpoint, not endpoint.connectable


def _rdma_address() -> str:
    """The first address of this host that the library can use RDMA from."""
    if reason := native.missing("rdma"):
        raise TransportError(reason)
    reasons = []
    for interface in hostinfo.interfaces():
        for address in interface.addresses:
            possible, text = native.rdma_choice(address)
            if possible:
                return address
            reasons.append(text)
    raise TransportError(f"no address of this host can use RDMA: {'; '.join(dict.fromkeys(reasons))}")


def _rdma_port(endpoint: Endpoint) -> peers.RdmaPort | None:
    if endpoint.scheme != "rdma":
        return None
    possible, text = native.rdma_choice(endpoint.host)
    found = rdma_devices.chosen(text) if possible else None
    if found is None:
        raise TransportError(text)
    return peers.RdmaPort(*found)
