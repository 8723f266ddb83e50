"""Servers, clients, raw sockets and frames for the transport's tests.  Every wait here has a deadline.

Times of tests are for a machine that runs as fast as it should; OFL_TEST_TIME_SCALE stretches all of them, for one that
is emulated.  Only `scaled`, `span_ns` and `after` know the factor.
"""

import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ofl.client import Client, connect
from ofl.echo import SERVICE, VERSION, serve_echo
from ofl.errors import ClosedError
from ofl.interface import Connected, Request
from ofl.server import Server
from transport_backends import TCP, Backend

SECOND = 1_000_000_000
SCALE = float(os.environ.get("OFL_TEST_TIME_SCALE", "1"))
PEERS = Path(__file__).parent / "peers"

HEADER = struct.Struct("<4sBBHQII")  # magic, header version, type, flags, sequence, body bytes, reserved
HEADER_VERSION = 2
CONNECT = struct.Struct("<QIHHIIBBHI64s32s")
ACCEPT = struct.Struct("<QIHHIBBH32s")
(
    CONNECT_TYPE,
    ACCEPT_TYPE,
    REFUSE_TYPE,
    REQUEST_TYPE,
    REPLY_TYPE,
    CANCEL_TYPE,
    HEARTBEAT_TYPE,
    CLOSE_TYPE,
    CHALLENGE_TYPE,
    PROOF_TYPE,
    LINK_TYPE,
    CANCELLED_TYPE,
) = range(1, 13)


def scaled(seconds: float) -> float:
    """Seconds of this machine."""
    return seconds * SCALE


def span_ns(seconds: float) -> int:
    """The same in nanoseconds."""
    return int(scaled(seconds) * SECOND)


def after(seconds: float) -> int:
    """A deadline that is meant to pass, in seconds from now."""
    return time.monotonic_ns() + span_ns(seconds)


def soon(seconds: float = 20.0) -> int:
    """A deadline that a healthy test never meets, also on a machine that is busy with other work."""
    return after(seconds)


FAST = {"heartbeat_ns": span_ns(0.05), "loss_ns": span_ns(0.5)}
"""For tests that wait for a peer to be lost."""

PATIENT = {"heartbeat_ns": span_ns(0.05), "loss_ns": span_ns(20)}
"""For all others: a machine that is busy with other work is no reason to lose a peer."""


class Elapsed:
    """Seconds spent inside a `with` block."""

    def __enter__(self) -> "Elapsed":
        self.begun = time.monotonic()
        self.seconds = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self.begun


def frame(
    kind: int,
    *,
    sequence: int = 0,
    body: bytes = b"",
    magic: bytes = b"OFL1",
    version: int = HEADER_VERSION,
    flags: int = 0,
) -> bytes:
    """One frame, laid out by hand from the documentation."""
    return HEADER.pack(magic, version, kind, flags, sequence, len(body), 0) + body


def connect_body(
    service: str = SERVICE,
    *,
    heartbeat_ms: int = 100,
    loss_ms: int = 2000,
    transport: int = 1,
    authentication: int = 0,
    nonce: bytes = bytes(32),
) -> bytes:
    """The body of a connect frame that an echo server accepts."""
    version = (VERSION, VERSION)
    times = (int(heartbeat_ms * SCALE), int(loss_ms * SCALE))
    name = service.encode()
    return CONNECT.pack(7, 1 << 20, *version, *times, transport, authentication, 0, 0, name, nonce)


def connect_frame(service: str = SERVICE, **fields: int) -> bytes:
    return frame(CONNECT_TYPE, body=connect_body(service, **fields))  # type: ignore[arg-type]


def accept_body(*, transport: int = 1, authentication: int = 0, mac: bytes = bytes(32)) -> bytes:
    """A server that agrees: boot nonce 7, bodies up to 1 MiB, version 1, 256 calls."""
    return ACCEPT.pack(7, 1 << 20, 1, 0, 256, transport, authentication, 0, mac)


def accept_frame(*, transport: int = 1) -> bytes:
    return frame(ACCEPT_TYPE, body=accept_body(transport=transport))


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


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A valid stream with a few bytes changed, cut off, doubled or put in."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed))
        kind = chance.randrange(4)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[at : at + chance.randrange(1, 40)]
            changed = changed or bytearray(b"\0")
        elif kind == 2:
            changed[at:at] = chance.randbytes(chance.randrange(1, 40))
        else:
            changed[at:at] = changed[max(0, at - 30) : at]
    return bytes(changed)


def finish(connection: socket.socket) -> bytes:
    """Everything the peer still says, until it closes the connection (or resets it)."""
    data = b""
    with contextlib.suppress(ConnectionError), connection:
        while piece := connection.recv(65536):
            data += piece
    return data


def eventually(holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Poll until it holds; fails with what was expected."""
    deadline = soon(seconds)
    while not holds():
        assert time.monotonic_ns() < deadline, f"did not happen in {scaled(seconds)} s: {what}"
        time.sleep(0.002)


def take(server: Server) -> Request:
    """The next request; connections that come before it are passed over."""
    event = server.next_event(deadline_ns=soon())
    while isinstance(event, Connected):
        event = server.next_event(deadline_ns=soon())
    assert isinstance(event, Request), event
    return event


def answer(server: Server, request: Request, *parts: bytes) -> None:
    """A reply that the client still wants."""
    assert server.reply(request.connection, request.sequence, parts)


@dataclass
class Harness:
    """Makes servers and clients that are closed when the test ends."""

    backend: Backend = TCP
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def server(self, service: str = SERVICE, **options: object) -> Server:
        """A server without a consumer."""
        merged: dict[str, object] = {
            "version_min": 1,
            "version_max": 1,
            "max_frame_bytes": 1 << 20,
            "handshake_ns": span_ns(5),
            "frame_ns": span_ns(10),
        } | options
        return self.stack.enter_context(Server(service, **merged))  # type: ignore[arg-type]

    def listening(self, service: str = SERVICE, **options: object) -> tuple[Server, str]:
        """A server without a consumer, and its endpoint."""
        server = self.server(service, **options)
        return server, server.listen(self.backend.fresh())

    def echo(self, endpoint: str | None = None, **options: object) -> tuple[Server, str]:
        """A server whose consumer echoes on its own thread, and its endpoint."""
        server = self.server(**options)  # type: ignore[arg-type]
        bound = server.listen(endpoint or self.backend.fresh())
        stopped = threading.Event()

        def serve() -> None:
            with contextlib.suppress(ClosedError):  # some tests close the server themselves
                serve_echo(server, stopped=stopped.is_set)

        thread = threading.Thread(target=serve)
        thread.start()

        def stop() -> None:
            stopped.set()
            server.wake()
            thread.join(scaled(10))
            assert not thread.is_alive()

        self.stack.callback(stop)
        return server, bound

    def client(
        self, endpoint: str, *, service: str = SERVICE, deadline_ns: int | None = None, **options: object
    ) -> Client:
        """A client of the echo service that is slow to give its peer up, unless told otherwise."""
        limits: dict[str, object] = {"version_min": 1, "version_max": 1, "max_frame_bytes": 1 << 20}
        merged = limits | PATIENT | options
        made = connect(
            endpoint,
            service=service,
            deadline_ns=soon() if deadline_ns is None else deadline_ns,
            **merged,  # type: ignore[arg-type]
        )
        return self.stack.enter_context(made)

    @contextlib.contextmanager
    def busy_client(self, endpoint: str, **options: object) -> Iterator[Callable[[], int]]:
        """A client that calls all the while; yields a function that says how often it was served."""
        client = self.client(endpoint, **options)
        stop = threading.Event()
        served = 0
        failures: list[BaseException] = []

        def work() -> None:
            nonlocal served
            try:
                while not stop.wait(0.001):
                    body = served.to_bytes(8, "little")
                    assert client.call([body], deadline_ns=soon()) == body
                    served += 1
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield lambda: served
        finally:
            stop.set()
            thread.join(scaled(30))
        assert failures == []

    def raw(self, endpoint: str, data: bytes = b"") -> socket.socket:
        """A plain socket to where a server negotiates, after sending some bytes."""
        connection = self.stack.enter_context(self.backend.control(endpoint))
        connection.settimeout(scaled(5))
        if data:
            connection.sendall(data)
        return connection

    def listener(self) -> tuple[socket.socket, str]:
        """A plain listening socket that a test plays a broken server with."""
        listener, endpoint = self.backend.control_listener()
        self.stack.enter_context(listener)
        listener.settimeout(scaled(5))
        return listener, endpoint

    def peer_process(self, program: str, *arguments: str) -> "subprocess.Popen[str]":
        """A program of the folder peers/ as its own process, killed when the test ends."""
        process = subprocess.Popen(
            [sys.executable, str(PEERS / f"{program}.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(PEERS), *sys.path])},
        )
        self.stack.callback(_end, process)
        return process

    def served_process(self, endpoint: str | None = None) -> "tuple[subprocess.Popen[str], str]":
        """A server in its own process (peers/serve.py says what it answers), and its endpoint."""
        process = self.peer_process("serve", endpoint or self.backend.fresh())
        return process, said(process, "listening on ")


def said(process: "subprocess.Popen[str]", begins: str) -> str:
    """The rest of the next line of a peer process, which must begin so."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(begins):
        pytest.fail(f"the process said {line!r}, not {begins!r}")
    return line.removeprefix(begins).strip()


def tell(process: "subprocess.Popen[str]", line: str) -> None:
    """One line to a peer process."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def freeze(process: "subprocess.Popen[str]") -> None:
    """Stop a peer process; every thread of it stands still on return."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def thaw(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGCONT)


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate(timeout=10)
