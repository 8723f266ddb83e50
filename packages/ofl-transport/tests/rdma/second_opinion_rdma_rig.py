"""The rig of the second opinion over RDMA, for inside the VM alone: it needs pyverbs and a device."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from rdma.second_opinion.rdma_wire import Device, RdmaWire
from rdma.second_opinion_rig import Link, Rig
from transport_backends import RDMA
from transport_harness import Harness

POISON = b"\x5a"
MARGIN = 4099
"""Odd, so that a room begins at no boundary of anything."""
LARGEST = 1 << 20
REGION_BYTES = LARGEST + 2 * MARGIN


class RdmaRig(Rig[RdmaWire]):
    """On one device, at the address of its interface."""

    def __init__(self, harness: Harness, device: str, address: str) -> None:
        self.device, self.address = device, address
        super().__init__(harness, self.client_link(), self.server_link())

    def client_link(self, **changes: object) -> Link[RdmaWire]:
        """changes: of its Device."""
        return replace(self._device(REGION_BYTES), **changes).as_client  # type: ignore[arg-type]

    def server_link(self, **changes: object) -> Link[RdmaWire]:
        return replace(self._device(0), **changes).as_server  # type: ignore[arg-type]

    def _device(self, region_bytes: int) -> Device:
        return Device(self.device, self.address, region_bytes=region_bytes)


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
