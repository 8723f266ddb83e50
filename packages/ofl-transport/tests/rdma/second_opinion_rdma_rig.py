"""The rig of the second opinion over RDMA, for inside the VM alone: it needs pyverbs and a device."""

import contextlib
from collections.abc import Iterator

from rdma.second_opinion.rdma_wire import Device, RdmaWire
from rdma.second_opinion.records import Transport
from rdma.second_opinion_rig import Link, Rig
from transport_backends import RDMA
from transport_harness import Harness

POISON = b"\x5a"
MARGIN = 4099
"""Odd, so that a room begins at no boundary of anything."""
LARGEST = 1 << 20
REGION_BYTES = LARGEST + 2 * MARGIN


class RdmaRig(Rig[RdmaWire]):
    """link: makes the wire with other receives or segments than usual."""

    def __init__(self, harness: Harness, device: str, address: str) -> None:
        self.device = device
        client = Device(device, address, region_bytes=REGION_BYTES)
        server = Device(device, address)
        super().__init__(harness, Transport.RDMA, address, client.as_client, server.as_server)

    def client_link(self, *, receives: int = 64, segment_bytes: int = 16384) -> Link[RdmaWire]:
        return Device(self.device, self.address, receives, segment_bytes, REGION_BYTES).as_client

    def server_link(self, *, receives: int = 64, segment_bytes: int = 16384) -> Link[RdmaWire]:
        return Device(self.device, self.address, receives, segment_bytes).as_server


@contextlib.contextmanager
def rdma_rig(device: str, address: str) -> Iterator[RdmaRig]:
    """Everything it made ends with it."""
    harness = Harness(RDMA)
    with harness.stack:
        yield RdmaRig(harness, device, address)


def poison(wire: RdmaWire) -> None:
    """All of a client peer's region."""
    wire.pair.region.write(POISON * REGION_BYTES, REGION_BYTES)


def boundary_sizes(segment_bytes: int) -> list[int]:
    """Bodies around what a segment holds beside a header, and beyond."""
    first = segment_bytes - 24
    edges = [first, first + segment_bytes, segment_bytes]
    return [0, 1, 24, *(edge + step for edge in edges for step in (-1, 0, 1)), 75_000, LARGEST]
