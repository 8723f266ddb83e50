"""Servers, clients, raw sockets and frames for the transport's tests.  Every wait here has a deadline."""

import contextlib
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ofl.client import Client, connect
from ofl.echo import SERVICE, VERSION, serve_echo
from ofl.endpoint import parse_endpoint
from ofl.errors import ClosedError
from ofl.server import Server

SECOND = 1_000_000_000
HEADER = struct.Struct("<4sBBHQII")  # magic, header version, type, flags, sequence, body bytes, reserved
CONNECT = struct.Struct("<QIHHII64sQ")
ACCEPT = struct.Struct("<QIHHII")
CONNECT_TYPE, ACCEPT_TYPE, REFUSE_TYPE, REQUEST_TYPE, REPLY_TYPE, CANCEL_TYPE, HEARTBEAT_TYPE, CLOSE_TYPE = (
    range(1, 9)
)

FAST = {"heartbeat_ns": SECOND // 20, "loss_ns": SECOND // 2}


def in_tenths(tenths: int) -> int:
    return time.monotonic_ns() + tenths * SECOND // 10


class Elapsed:
    """Seconds spent inside a `with` block."""

    def __enter__(self) -> "Elapsed":
        self.begun = time.monotonic()
        self.seconds = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self.begun


def soon(seconds: float = 20.0) -> int:
    """A deadline that a healthy test never meets, also on a machine that is busy with other work."""
    return time.monotonic_ns() + int(seconds * SECOND)


def frame(
    kind: int, *, sequence: int = 0, body: bytes = b"", magic: bytes = b"OFL1", version: int = 1
) -> bytes:
    """One frame, laid out by hand from the documentation."""
    return HEADER.pack(magic, version, kind, 0, sequence, len(body), 0) + body


def connect_frame(service: str = SERVICE, *, heartbeat_ms: int = 100, loss_ms: int = 2000) -> bytes:
    """A connect frame that an echo server accepts."""
    body = CONNECT.pack(7, 1 << 20, VERSION, VERSION, heartbeat_ms, loss_ms, service.encode(), 0)
    return frame(CONNECT_TYPE, body=body)


def accept_frame() -> bytes:
    """The answer of a server that agrees: boot nonce 7, bodies up to 1 MiB, version 1, 256 calls."""
    return frame(ACCEPT_TYPE, body=ACCEPT.pack(7, 1 << 20, 1, 0, 256, 0))


def read_frame(connection: socket.socket) -> tuple[int, int, bytes]:
    """Type, sequence and body of the next frame that is no heartbeat.  Raises EOFError, TimeoutError."""
    while True:
        _, _, kind, _, sequence, size, _ = HEADER.unpack(_read_exactly(connection, HEADER.size))
        body = _read_exactly(connection, size)
        if kind != HEARTBEAT_TYPE:
            return kind, sequence, body


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def eventually(holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Poll until it holds; fails with what was expected."""
    deadline = soon(seconds)
    while not holds():
        assert time.monotonic_ns() < deadline, f"did not happen in {seconds} s: {what}"
        time.sleep(0.002)


@dataclass
class Harness:
    """Makes servers and clients that are closed when the test ends."""

    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def server(self, service: str = SERVICE, **options: int) -> Server:
        """A server without a consumer."""
        merged: dict[str, int] = {"version_min": 1, "version_max": 1, "max_frame_bytes": 1 << 20} | options
        return self.stack.enter_context(Server(service, **merged))  # type: ignore[arg-type]

    def echo(self, endpoint: str = "tcp://127.0.0.1:0", **options: int) -> tuple[Server, str]:
        """A server whose consumer echoes on its own thread, and its endpoint."""
        server = self.server(**options)
        bound = server.listen(endpoint)
        stopped = threading.Event()

        def serve() -> None:
            with contextlib.suppress(ClosedError):  # some tests close the server themselves
                serve_echo(server, stopped=stopped.is_set)

        thread = threading.Thread(target=serve)
        thread.start()

        def stop() -> None:
            stopped.set()
            server.wake()
            thread.join(10)
            assert not thread.is_alive()

        self.stack.callback(stop)
        return server, bound

    def client(
        self, endpoint: str, *, service: str = SERVICE, deadline_ns: int | None = None, **options: int
    ) -> Client:
        """A client of the echo service, unless told otherwise."""
        merged: dict[str, int] = {"version_min": 1, "version_max": 1, "max_frame_bytes": 1 << 20} | options
        made = connect(
            endpoint,
            service=service,
            deadline_ns=soon() if deadline_ns is None else deadline_ns,
            **merged,
        )
        return self.stack.enter_context(made)

    def raw(self, endpoint: str, data: bytes = b"") -> socket.socket:
        """A plain socket to a server, after sending some bytes."""
        target = parse_endpoint(endpoint)
        connection = self.stack.enter_context(socket.create_connection((target.host, target.port), timeout=5))
        if data:
            connection.sendall(data)
        return connection

    def listener(self) -> tuple[socket.socket, str]:
        """A plain listening socket that a test plays a broken server with."""
        listener = self.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(5)
        return listener, f"tcp://127.0.0.1:{listener.getsockname()[1]}"

    def echo_process(self, endpoint: str = "tcp://127.0.0.1:0") -> tuple["subprocess.Popen[str]", str]:
        """`ofl echo serve` as its own process, and its endpoint."""
        process = subprocess.Popen(
            [sys.executable, "-m", "ofl", "echo", "serve", endpoint], stdout=subprocess.PIPE, text=True
        )
        self.stack.callback(_end, process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "listening on" in line
        return process, line.split()[-1]


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate(timeout=10)
