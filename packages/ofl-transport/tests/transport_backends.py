"""The wires that the behaviour suite runs on, and where each of them negotiates.

OFL_TEST_BACKENDS names them, separated by commas; without it tcp and shm, which any host has.  OFL_TEST_RDMA_ADDRESS is
the address that RDMA listens on; without it the first IPv4 address that a device of this host has.
"""

import ipaddress
import itertools
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from ofl.endpoint import parse_endpoint

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Backend:
    """One wire.  number: as connect.transport has it; one_sided: the peer writes without our CPU.

    fresh: an endpoint to listen on that nobody else uses.  control: a connected plain socket to where a server
    negotiates.  control_listener: a plain listening socket, and the endpoint that a client reaches it by.
    """

    name: str
    number: int
    one_sided: bool
    fresh: Callable[[], str]
    control: Callable[[str], socket.socket]
    control_listener: Callable[[], tuple[socket.socket, str]]

    def __str__(self) -> str:
        return self.name


def rdma_address() -> str:
    """Where RDMA listens; a device's table of GIDs has its IPv4 address mapped into IPv6."""
    if address := os.environ.get("OFL_TEST_RDMA_ADDRESS"):
        return address
    for entry in sorted(Path("/sys/class/infiniband").glob("*/ports/1/gids/*")):
        try:
            mapped = ipaddress.IPv6Address(entry.read_text().strip()).ipv4_mapped
        except OSError:  # an index that the table does not have
            continue
        if mapped is not None:
            return str(mapped)
    raise LookupError("OFL_TEST_BACKENDS names rdma, and no RDMA device of this host has an IPv4 address")


def _inet_control(endpoint: str) -> socket.socket:
    target = parse_endpoint(endpoint)
    return socket.create_connection((target.host, target.port))


def _tcp_listener() -> tuple[socket.socket, str]:
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def _rdma_listener() -> tuple[socket.socket, str]:
    listener = socket.create_server((rdma_address(), 0))
    host, port = listener.getsockname()
    return listener, f"rdma://{host}:{port}"


def _shm_fresh() -> str:
    return f"shm://test-{os.getpid()}-{next(_numbers)}"


def _shm_address(endpoint: str) -> bytes:
    return b"\0ofl/" + parse_endpoint(endpoint).host.encode()


def _shm_control(endpoint: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_shm_address(endpoint))
    return connection


def _shm_listener() -> tuple[socket.socket, str]:
    endpoint = _shm_fresh()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_shm_address(endpoint))
    listener.listen()
    return listener, endpoint


TCP = Backend("tcp", 1, False, lambda: "tcp://127.0.0.1:0", _inet_control, _tcp_listener)
RDMA = Backend("rdma", 2, True, lambda: f"rdma://{rdma_address()}:0", _inet_control, _rdma_listener)
SHM = Backend("shm", 3, False, _shm_fresh, _shm_control, _shm_listener)


def asked_for() -> list[Backend]:
    """The backends that this run is about.  Raises KeyError for a name that is none."""
    known = {backend.name: backend for backend in (TCP, RDMA, SHM)}
    return [known[name] for name in os.environ.get("OFL_TEST_BACKENDS", "tcp,shm").split(",")]


def only_on(holds: Callable[[Backend], bool]) -> Callable[..., object]:
    """Marks a test of what some wires have; a run without any of them does not have the test."""
    chosen = [backend for backend in asked_for() if holds(backend)]
    if not chosen:
        return lambda _test: None
    return pytest.mark.parametrize("backend", chosen, indirect=True, ids=str)
