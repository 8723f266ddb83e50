"""Makes peers: as a client of a server that listens, or behind a listener of its own."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from rdma.second_opinion.control import FrameSocket
from rdma.second_opinion.negotiation import Wishes, accept_over, connect_over
from rdma.second_opinion.peers import ClientPeer, ServerPeer, W
from rdma.second_opinion.records import FROM_CLIENT, FROM_SERVER


def connect(
    host: str, port: int, wishes: Wishes, link: Callable[[FrameSocket], W], *, patience_s: float
) -> ClientPeer[W]:
    """Connected, negotiated and linked.  link: makes the wire over the control socket.  Raises RefusedError."""
    connected = socket.create_connection((host, port), timeout=patience_s)
    _send_at_once(connected)
    control = FrameSocket(connected, FROM_SERVER, patience_s)
    try:
        agreement = connect_over(control, wishes)
        return ClientPeer(link(control), agreement)
    except BaseException:
        control.close()
        raise


@dataclass(frozen=True)
class Listener:
    """A server that takes one client at a time."""

    socket: socket.socket
    patience_s: float

    @staticmethod
    def on(host: str, *, patience_s: float) -> "Listener":
        made = socket.create_server((host, 0))
        made.settimeout(patience_s)
        return Listener(made, patience_s)

    @property
    def port(self) -> int:
        port: int = self.socket.getsockname()[1]
        return port

    def accept(self, wishes: Wishes, link: Callable[[FrameSocket], W]) -> ServerPeer[W]:
        """Of the next client, negotiated and linked.  Raises RefusedError."""
        connected, _ = self.socket.accept()
        _send_at_once(connected)
        control = FrameSocket(connected, FROM_CLIENT, self.patience_s)
        try:
            agreement = accept_over(control, wishes)
            return ServerPeer(link(control), agreement)
        except BaseException:
            control.close()
            raise

    def close(self) -> None:
        self.socket.close()


def _send_at_once(connected: socket.socket) -> None:
    """Else a small frame waits for the acknowledgement of the one before it, 40 ms."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
