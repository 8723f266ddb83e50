"""Makes peers: as a client of a server that listens, or behind a listener of its own."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from rdma.second_opinion.control import FrameSocket
from rdma.second_opinion.negotiation import Wishes, accept_over, connect_over
from rdma.second_opinion.peers import ClientPeer, ServerPeer, W
from rdma.second_opinion.records import FROM_CLIENT, FROM_SERVER


def connect(
    connected: socket.socket, wishes: Wishes, link: Callable[[FrameSocket], W], *, patience_s: float
) -> ClientPeer[W]:
    """Negotiate and link.  connected: the control socket.  link: makes the wire over it.  Raises RefusedError."""
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

    listening: socket.socket
    patience_s: float

    def accept(self, wishes: Wishes, link: Callable[[FrameSocket], W]) -> ServerPeer[W]:
        """Of the next client, negotiated and linked.  Raises RefusedError."""
        connected, _ = self.listening.accept()
        _send_at_once(connected)
        control = FrameSocket(connected, FROM_CLIENT, self.patience_s)
        try:
            agreement = accept_over(control, wishes)
            return ServerPeer(link(control), agreement)
        except BaseException:
            control.close()
            raise

    def close(self) -> None:
        self.listening.close()


def _send_at_once(connected: socket.socket) -> None:
    """Else a small frame waits for the acknowledgement of the one before it, 40 ms."""
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
