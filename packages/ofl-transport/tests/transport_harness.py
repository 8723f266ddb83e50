"""Servers, clients, raw sockets and other processes for the transport's tests.  Every wait here has a deadline."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, Unpack

import pytest
from ofl.client import Client, connect
from ofl.echo import SERVICE, serve_echo
from ofl.errors import ClosedError
from ofl.interface import Connected, Disconnected, Request
from ofl.server import Server
from transport_backends import TCP, Backend
from transport_frames import read_frame
from transport_times import PATIENT, joined, scaled, soon, span_ns
from transport_times import after as after
from transport_times import eventually as eventually


class ClientOptions(TypedDict, total=False):
    """What a test may tell a client of the harness beside its endpoint, service and deadline."""

    version_min: int
    version_max: int
    max_frame_bytes: int
    heartbeat_ns: int
    loss_ns: int
    spin_ns: int
    key_file: str | os.PathLike[str] | None


class ServerOptions(TypedDict, total=False):
    """What a test may tell a server of the harness beside its service."""

    version_min: int
    version_max: int
    max_frame_bytes: int
    allow_any: bool
    max_connections: int
    max_pending: int
    max_calls: int
    handshake_ns: int
    frame_ns: int
    max_queued_bytes: int | None
    spin_ns: int | None
    key_file: str | os.PathLike[str] | None
    allowed: Sequence[str]


PEERS = Path(__file__).parent / "peers"


def take(server: Server) -> Request:
    """The next request; connections that come before it are passed over."""
    event = server.next_event(deadline_ns=soon())
    while isinstance(event, Connected):
        event = server.next_event(deadline_ns=soon())
    assert isinstance(event, Request), event
    return event


def take_after_ends(server: Server) -> Request:
    """The same where connections may have ended on purpose meanwhile."""
    event = server.next_event(deadline_ns=soon())
    while isinstance(event, Connected | Disconnected):
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

    def server(self, service: str = SERVICE, **options: Unpack[ServerOptions]) -> Server:
        """A server without a consumer."""
        merged: ServerOptions = {
            "version_min": 1,
            "version_max": 1,
            "max_frame_bytes": 1 << 20,
            "handshake_ns": span_ns(5),
            "frame_ns": span_ns(10),
        }
        merged.update(options)
        return self.stack.enter_context(Server(service, **merged))

    def listening(self, service: str = SERVICE, **options: Unpack[ServerOptions]) -> tuple[Server, str]:
        """A server without a consumer, and its endpoint."""
        server = self.server(service, **options)
        return server, server.listen(self.backend.fresh())

    def echo(self, endpoint: str | None = None, **options: Unpack[ServerOptions]) -> tuple[Server, str]:
        """A server whose consumer echoes on its own thread, and its endpoint."""
        server = self.server(**options)
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
            joined(thread)

        self.stack.callback(stop)
        return server, bound

    def client(
        self,
        endpoint: str,
        *,
        service: str = SERVICE,
        deadline_ns: int | None = None,
        **options: Unpack[ClientOptions],
    ) -> Client:
        """A client of the echo service that is slow to give its peer up, unless told otherwise."""
        merged: ClientOptions = {
            "version_min": 1,
            "version_max": 1,
            "max_frame_bytes": 1 << 20,
            "heartbeat_ns": PATIENT["heartbeat_ns"],
            "loss_ns": PATIENT["loss_ns"],
        }
        merged.update(options)
        made = connect(
            endpoint,
            service=service,
            deadline_ns=soon() if deadline_ns is None else deadline_ns,
            **merged,
        )
        return self.stack.enter_context(made)

    @contextlib.contextmanager
    def busy_client(self, endpoint: str, **options: Unpack[ClientOptions]) -> Iterator[Callable[[], int]]:
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
            joined(thread, 30)
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

    def accepted(self, accept: bytes, **options: Unpack[ClientOptions]) -> tuple[Client, socket.socket]:
        """A client of a server that sent the accept frame given and nothing since, and that server's socket."""
        listener, endpoint = self.listener()
        served: list[socket.socket] = []

        def play() -> None:
            connection, _ = listener.accept()
            served.append(self.stack.enter_context(connection))
            read_frame(connection)
            connection.sendall(accept)

        thread = threading.Thread(target=play)
        thread.start()
        try:
            client = self.client(endpoint, **options)
        finally:
            joined(thread)
        return client, served[0]

    def peer_process(
        self, program: str, *arguments: str, before: Sequence[str] = ()
    ) -> "subprocess.Popen[str]":
        """A program of the folder peers/ as its own process, killed when the test ends; `before`: words that run it."""
        process = subprocess.Popen(
            [*before, sys.executable, str(PEERS / f"{program}.py"), *arguments],
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
    process.communicate(timeout=scaled(20))
