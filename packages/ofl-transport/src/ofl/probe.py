"""`ofl probe`: what this build and this host can do, and whether a peer answers.  Changes nothing."""

import os
import socket
import time
from dataclasses import asdict
from typing import Any

from ofl import __version__, abi, echo, hostinfo, native, rdma_devices, settings
from ofl.client import Client, connect
from ofl.endpoint import SCHEMES, Endpoint, parse_endpoint
from ofl.errors import PeerLostError, TransportError

Report = dict[str, Any]
STAY_LOSS_LIMITS = 2
"""A way that carries nothing shows after one; a machine that is busy gets as long again to notice."""
CONNECTION_BYTES = (64 + 32) * 16384
"""What each end of an RDMA connection registers for itself: receives and send slots (cpp/rdma_limits.hpp)."""


def host_report() -> Report:
    """The library, what it supports, devices, interfaces, limits.

    Raises ImportError when the library is missing.
    """
    native.loaded()
    features = {name: native.missing(name) for name in native.FEATURES}
    return {
        "version": __version__,
        "library": str(native.library_path()),
        "abi_version": abi.ABI_VERSION,
        "features": {name: {"ok": not text, "missing": text} for name, text in features.items()},
        "capabilities": {name: native.capabilities(name) for name in SCHEMES if not features[name]},
        "rdma_devices": [asdict(device) for device in rdma_devices.devices()],
        "interfaces": [
            {"name": item.name, "mtu": item.mtu, "addresses": list(item.addresses)}
            for item in hostinfo.interfaces()
        ],
        "limits": hostinfo.limits(),
    }


def endpoint_report(text: str) -> Report:
    """The way to an endpoint.  Raises EndpointError; an unreachable host is part of the report."""
    endpoint = parse_endpoint(text)
    report: Report = {"endpoint": str(endpoint), "ok": True}
    if endpoint.scheme == "shm":
        return report | {"why": f"a name on this host: no route is needed to {endpoint.host!r}"}
    try:
        route = hostinfo.route_to(endpoint)
    except OSError as error:
        return report | {"ok": False, "error": f"no way to {endpoint.host}: {error.strerror or error}"}
    report |= {
        "remote": route.remote,
        "local": route.local,
        "interface": route.interface,
        "mtu": route.mtu,
        "why": route.why,
    }
    return report | (_rdma_report(route.local) if endpoint.scheme == "rdma" else {})


def _rdma_report(local: str) -> Report:
    """The device for a local address, and what the limit of locked memory means; only where RDMA is to be used."""
    ok, text = native.rdma_choice(local)
    report: Report = {"rdma": text, "ok": ok}
    memlock = hostinfo.limits()["memlock_bytes"]
    if memlock >= 0 and not _may_lock_at_will():
        report["memlock"] = (
            f"this process may lock {memlock} bytes; a connection registers {CONNECTION_BYTES} bytes for itself, "
            "besides the messages' memory (the whole need is judged by `ofl doctor`, and for an engine or a worker by "
            "the doctor of its own command), and what goes beyond the limit is refused: "
            "raise it by `ulimit -l unlimited`, or LimitMEMLOCK=infinity in the systemd unit"
        )
    return report


def _may_lock_at_will() -> bool:
    """CAP_IPC_LOCK: the limit does not hold for it."""
    capability = 14
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        effective = next((line.split()[1] for line in status if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> capability & 1)


def connect_report(
    text: str,
    *,
    service: str,
    version: int,
    timeout_ns: int,
    key_file: str | os.PathLike[str] | None = None,
) -> Report:
    """Connect once and negotiate, then close.  rtt_us: the TCP handshake, one round trip of the network.

    The negotiation for RDMA goes over TCP.  That RDMA's own packets arrive, alive_ms tells: for so long the connection
    stayed open, where a way without them ends it after half of that.
    """
    report: Report = {"service": service, "service_version": version}
    endpoint = parse_endpoint(text)
    try:
        if endpoint.scheme != "shm":
            report["rtt_us"] = _handshake_us(endpoint, timeout_ns)
        begun = time.monotonic_ns()
        with connect(
            text,
            service=service,
            version_min=version,
            version_max=version,
            max_frame_bytes=echo.MAX_FRAME_BYTES,
            deadline_ns=begun + timeout_ns,
            key_file=key_file,
        ) as client:
            report["connect_us"] = (time.monotonic_ns() - begun) / 1000
            report |= {
                "ok": True,
                "boot_nonce": f"{client.peer.boot_nonce:016x}",
                "max_frame_bytes": client.peer.max_frame_bytes,
                "authenticated": client.peer.authenticated,
                "wire": client.peer.wire,
            }
            if endpoint.scheme == "rdma":
                report["alive_ms"] = _stay(client)
    except TransportError as error:
        report |= {"ok": False, "error": str(error)}
    except OSError as error:
        report |= {"ok": False, "error": f"{text}: {(error.strerror or str(error)).lower()}"}
    return report


def _handshake_us(endpoint: Endpoint, timeout_ns: int) -> float:
    source = (endpoint.bind, 0) if endpoint.bind else None
    begun = time.monotonic_ns()
    with socket.create_connection((endpoint.host, endpoint.port), timeout_ns / 1e9, source):
        return (time.monotonic_ns() - begun) / 1000


def _stay(client: Client) -> int:
    """Keep the connection for STAY_LOSS_LIMITS; the milliseconds.  Raises PeerLostError where it is lost meanwhile."""
    _, loss_ns = settings.liveness_ns()
    stay_ns = STAY_LOSS_LIMITS * loss_ns
    end_ns = time.monotonic_ns() + stay_ns
    while client.alive and time.monotonic_ns() < end_ns:
        time.sleep(0.01)  # its end wakes nobody who does not wait for a reply
    if not client.alive:
        raise PeerLostError(
            f"{client.peer.endpoint}: the negotiation over TCP succeeded, and then the connection over RDMA was lost "
            f"({client.reason}): most likely a firewall drops UDP port 4791, or one end uses RoCE v1 and the other v2"
        )
    return stay_ns // settings.MS
