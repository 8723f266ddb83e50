"""Connections where a host has few local ports: few_ports.py PORTS, in a network namespace of its own, as root.

Prints one JSON object: how many connections were open at once, bound to one address, to two servers; what one more was
told; and, once all but one were closed, how many sockets to its server were established after 1,000 calls on it, and by
how many more than before the calls there were in any state.
"""

import contextlib
import json
import socket
import struct
import sys
import threading
import time
from collections import Counter
from fcntl import ioctl
from pathlib import Path

from ofl.client import Client, connect
from ofl.echo import MAX_FRAME_BYTES, SERVICE, serve_echo
from ofl.errors import ClosedError, TransportError
from ofl.server import Server

CALLS = 1000
FIRST = 40000
LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
ESTABLISHED = "01"
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def soon() -> int:
    return time.monotonic_ns() + 60 * 10**9


def connected(endpoint: str) -> Client:
    return connect(
        f"{endpoint}?bind=127.0.0.2",
        service=SERVICE,
        version_min=1,
        version_max=1,
        max_frame_bytes=MAX_FRAME_BYTES,
        deadline_ns=soon(),
        loss_ns=60 * 10**9,
    )


def sockets(endpoint: str) -> "Counter[str]":
    """How many sockets hold a connection to an endpoint, by the kernel's number of the state."""
    port = f":{int(endpoint.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return Counter(row[3] for row in rows if row[2].endswith(port))


def serve(server: Server) -> None:
    with contextlib.suppress(ClosedError):
        serve_echo(server, stopped=lambda: False)


def main(ports: str) -> None:
    with socket.socket() as any_socket:
        ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    found: dict[str, object] = {}
    with contextlib.ExitStack() as stack:
        endpoints = []
        for _ in range(2):
            server = Server(SERVICE, version_min=1, version_max=1, max_frame_bytes=MAX_FRAME_BYTES)
            stack.enter_context(server)
            endpoints.append(server.listen("tcp://127.0.0.1:0"))
            threading.Thread(target=serve, args=(server,), daemon=True).start()
        LOCAL_PORTS.write_text(f"{FIRST} {FIRST + int(ports) - 1}")
        clients = [connected(endpoint) for endpoint in endpoints for _ in range(int(ports))]
        found["open"] = len(clients)
        try:
            connected(endpoints[0])
        except TransportError as error:
            found["refused"] = str(error)
        for client in clients[1:]:
            client.close()
        before = sockets(endpoints[0])
        for number in range(CALLS):
            body = number.to_bytes(4, "little")
            assert clients[0].call([body], deadline_ns=soon()) == body
        after = sockets(endpoints[0])
        found |= {"established": after[ESTABLISHED], "grown": after.total() - before.total()}
        clients[0].close()
    print(json.dumps(found))


main(sys.argv[1])
