"""Brings the second opinion and the library together: each against the other, over one wire.

The one place beside the tests that knows both.  What it makes ends with the harness.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Generic, ParamSpec, TypedDict, TypeVar, Unpack

from ofl.client import Client
from ofl.echo import SERVICE
from rdma.second_opinion.connect import Listener, connect
from rdma.second_opinion.control import FrameSocket
from rdma.second_opinion.negotiation import Wishes
from rdma.second_opinion.peers import ClientPeer, ServerPeer, W
from rdma.second_opinion.records import Transport
from rdma.second_opinion.shm_wire import ShmWire
from rdma.second_opinion.wires import SocketWire
from transport_backends import TCP
from transport_harness import ClientOptions, Harness
from transport_times import scaled

PATIENCE_S = scaled(20)
Link = Callable[[FrameSocket], W]
P = ParamSpec("P")
R = TypeVar("R")


class Changes(TypedDict, total=False):
    """What a test wishes otherwise."""

    service: str
    transport: Transport
    version_min: int
    version_max: int
    frame_bytes_max: int
    calls_max: int
    heartbeat_ms: int
    loss_ms: int
    key: bytes | None


def wishes(over: Transport, **changes: Unpack[Changes]) -> Wishes:
    """Of a peer that is slow to give the other end up."""
    told = Wishes(SERVICE, over, heartbeat_ms=int(scaled(50)), loss_ms=int(scaled(20_000)))
    return replace(told, **changes)


@dataclass
class Rig(Generic[W]):
    """On the wire of its harness.  as_client, as_server: how a peer makes its wire, unless told otherwise."""

    harness: Harness
    as_client: Link[W]
    as_server: Link[W]

    def __post_init__(self) -> None:
        self.transport = Transport(self.harness.backend.number)
        listening, self.endpoint = self.harness.listener()
        listening.settimeout(PATIENCE_S)
        self._listener = Listener(listening, PATIENCE_S)
        self._pool = self.harness.stack.enter_context(ThreadPoolExecutor())

    def client_peer(
        self, endpoint: str, link: Link[W] | None = None, **changes: Unpack[Changes]
    ) -> ClientPeer[W]:
        """A client of the document, connected to a server of the library.  changes: of its wishes."""
        connected = self.harness.backend.control(endpoint)
        told = wishes(self.transport, **changes)
        peer = connect(connected, told, link or self.as_client, patience_s=PATIENCE_S)
        self.harness.stack.callback(peer.close)
        return peer

    def connecting(self, **options: Unpack[ClientOptions]) -> "Future[Client]":
        """A client of the library that connects to the listener of the document, in its own thread."""
        return self._pool.submit(self.harness.client, self.endpoint, **options)

    def accept(self, link: Link[W] | None = None, **changes: Unpack[Changes]) -> ServerPeer[W]:
        """The other end of it.  changes: of its wishes."""
        peer = self._listener.accept(wishes(self.transport, **changes), link or self.as_server)
        self.harness.stack.callback(peer.close)
        return peer

    def background(self, call: Callable[P, R], *words: P.args, **options: P.kwargs) -> "Future[R]":
        """Make a call of the library's in its own thread, while the peer does its part in this one."""
        return self._pool.submit(call, *words, **options)

    def pair(self, link: Link[W] | None = None, **changes: Unpack[Changes]) -> tuple[Client, ServerPeer[W]]:
        """Both, connected."""
        connecting = self.connecting()
        peer = self.accept(link, **changes)
        return connecting.result(), peer


TwoSidedRig = Rig[SocketWire] | Rig[ShmWire]


def two_sided_rig(harness: Harness) -> TwoSidedRig:
    """Over TCP or shared memory, as the harness has it."""
    if harness.backend == TCP:
        return Rig(harness, SocketWire, SocketWire)
    return Rig(harness, ShmWire.as_client, ShmWire.as_server)
