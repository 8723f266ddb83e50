"""What the stats say of the connection: whether there is one, the worker behind it, and the transport below it.

Reads only what either thread may read, so that the figures of an idle engine can be kept current.
"""

from collections.abc import Mapping
from typing import Any

import ofl
from ofl.contract.dspark_v1 import HelloFlag, HelloReply
from ofl.endpoint import parse_endpoint

from spark_overlay.link import Link


def refreshed(snapshot: Mapping[str, Any], link: Link) -> dict[str, Any]:
    """The snapshot with what is true of the connection now; a new mapping of plain JSON values."""
    return {
        **snapshot,
        "connected": link.session is not None,
        "disabled": link.disabled,
        "last_failure": link.last_failure,
        "worker": _worker(link.worker) if link.worker is not None else None,
        "transport": _transport(link),
        "counters": {**snapshot["counters"], **vars(link.counters)},
    }


def _worker(hello: HelloReply) -> dict[str, object]:
    """The worker as it last described itself, also where that did not fit."""
    shape = hello.shape
    return {
        "name": hello.worker_name,
        "boot_nonce": f"{hello.boot_nonce:016x}",
        "identity": shape.identity.hex(),
        "markov_identity": shape.markov_identity.hex(),
        "window": shape.window,
        "block_length": shape.block_length,
        "max_slots": shape.max_slots,
        "confidence": bool(hello.flags & HelloFlag.CONFIDENCE),
        "fake_drafts": bool(hello.flags & HelloFlag.FAKE_DRAFTS),
    }


def _transport(link: Link) -> dict[str, object] | None:
    """The last connection as negotiated; None before the first."""
    peer = link.peer
    if peer is None:
        return None
    return {
        "scheme": parse_endpoint(peer.endpoint).scheme,
        "wire": peer.wire,
        "authenticated": peer.authenticated,
        "version": peer.version,
        "max_frame_bytes": link.frame_bytes(peer),
        "peer_max_frame_bytes": peer.max_frame_bytes,
        "boot_nonce": f"{peer.boot_nonce:016x}",
        "library": f"ofl {ofl.__version__}",
    }
