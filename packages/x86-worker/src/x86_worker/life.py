"""The life of a worker process, from a drafter to the last reply: listen, say so, serve, stop."""

import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ofl.contract.dspark_v1 import SERVICE, VERSION
from ofl.contract.dspark_v1.layout import NAME_BYTES
from ofl.endpoint import parse_endpoint
from ofl.errors import TransportError
from ofl.server import Server

from x86_worker import log
from x86_worker.drafters.base import Drafter
from x86_worker.log import LOGGER
from x86_worker.problem import Problem
from x86_worker.serve import ReadyRecord, Stop, remove_ready_file, run, stop_on_signals, write_ready_file
from x86_worker.session import DrafterService, Limits
from x86_worker.supervisor import notify

OTHER_CONNECTIONS = 64
"""Connections beside those of sessions: status calls, probes, reconnects that overlap with their past."""


@dataclass(frozen=True)
class ServiceOptions:
    """What `serve` and `mock` share.

    endpoints: tcp://address:port, rdma://address:port or shm://name.  name: at most 32 bytes of UTF-8.
    any_address: wildcard addresses may be listened on.  any_policy: fake drafts serve every policy.
    key_file: clients must prove that they hold this key, and it is proved to them; None: nobody proves anything.
    allowed: addresses and prefixes that clients over tcp and rdma may come from; none: all.
    """

    endpoints: Sequence[str]
    name: str
    limits: Limits
    ready_file: Path | None
    log_level: str
    any_address: bool = False
    any_policy: bool = False
    key_file: Path | None = None
    allowed: Sequence[str] = ()


def serve_drafter(options: ServiceOptions, load: Callable[[], Drafter]) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return.

    load: makes the drafter; called once the endpoints are known to be free, so that a busy port is said
    before weights are read.  Raises Problem, EndpointError, AddressInUseError, TransportError where this host lacks
    what a wire or the key needs, and what load raises.
    """
    _check(options)
    log.configure(options.log_level)
    stop = Stop()
    # From here on a signal ends the process in good order, also while weights are being read.
    with stop_on_signals(stop):
        with _server(options) as trial:
            _listen(trial, options)
        drafter = load()
        if not stop.asked:
            _serve(options, drafter, stop)


def _serve(options: ServiceOptions, drafter: Drafter, stop: Stop) -> None:
    boot_nonce = secrets.randbits(64)
    with ExitStack() as stack:
        server = stack.enter_context(_server(options))
        stop.wake = server.wake
        service = DrafterService(
            drafter,
            worker_name=options.name,
            boot_nonce=boot_nonce,
            now_ns=time.monotonic_ns(),
            limits=options.limits,
            any_policy=options.any_policy,
            transport_counters=server.counters,
        )
        bound = _listen(server, options)
        if options.ready_file is not None:
            write_ready_file(options.ready_file, _ready(drafter, bound, boot_nonce))
            stack.callback(remove_ready_file, options.ready_file)
        LOGGER.info("%s listens on %s for %s", options.name, ", ".join(bound), _clients(options))
        notify("READY=1", f"STATUS=listening on {', '.join(bound)}")
        run(server, service, stop)


def _ready(drafter: Drafter, bound: list[str], boot_nonce: int) -> ReadyRecord:
    facts = drafter.facts
    return ReadyRecord(
        pid=os.getpid(),
        endpoints=bound,
        boot_nonce=f"{boot_nonce:016x}",
        identity=facts.identity.hex(),
        markov_identity=facts.markov_identity.hex(),
        target_binding=facts.target_binding.hex(),
        kind=str(drafter.describe()["kind"]),
    )


def _check(options: ServiceOptions) -> None:
    schemes = {parse_endpoint(endpoint).scheme for endpoint in options.endpoints}
    if options.allowed and schemes == {"shm"}:
        raise Problem("--allow: clients over shm:// have no address; those of this user and root are let in")
    if not 1 <= len(options.name.encode()) <= NAME_BYTES or "\0" in options.name:
        raise Problem(f"--name {options.name!r}: 1 .. {NAME_BYTES} bytes of UTF-8 are needed")
    if options.ready_file is not None and not options.ready_file.absolute().parent.is_dir():
        raise Problem(f"--ready-file {options.ready_file}: its folder does not exist")


def _server(options: ServiceOptions) -> Server:
    try:
        return Server(
            SERVICE,
            version_min=VERSION,
            version_max=VERSION,
            max_frame_bytes=options.limits.max_frame_bytes,
            allow_any=options.any_address,
            max_connections=options.limits.max_sessions + OTHER_CONNECTIONS,
            key_file=options.key_file,
            allowed=options.allowed,
        )
    except ValueError as error:
        # Of what a server judges by value, only this comes from an operator unchecked.
        if isinstance(error, TransportError) or not options.allowed:
            raise
        raise Problem(f"--allow: {error}") from error


def _clients(options: ServiceOptions) -> str:
    """Who may connect, for the log."""
    who = f"clients that hold the key of {options.key_file}" if options.key_file else "clients without a key"
    return f"{who}, from {', '.join(options.allowed)}" if options.allowed else who


def _listen(server: Server, options: ServiceOptions) -> list[str]:
    return [server.listen(endpoint) for endpoint in options.endpoints]
