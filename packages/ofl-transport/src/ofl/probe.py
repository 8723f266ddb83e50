"""`ofl probe`: what this build and this host can do, and whether a peer answers.  Changes nothing."""

import json
import socket
import time
from typing import Any

from ofl import __version__, echo, hostinfo, native
from ofl.client import connect
from ofl.endpoint import PLANNED_SCHEMES, SCHEMES, Endpoint, parse_endpoint
from ofl.errors import TransportError

Report = dict[str, Any]


def host_report() -> Report:
    """The library, what it supports, interfaces, limits.  Raises ImportError when the library is missing."""
    native.loaded()
    return {
        "version": __version__,
        "library": str(native.library_path()),
        "capabilities": native.capabilities(),
        "schemes": dict.fromkeys(SCHEMES, True) | dict.fromkeys(PLANNED_SCHEMES, False),
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
    try:
        route = hostinfo.route_to(endpoint)
    except OSError as error:
        return report | {"ok": False, "error": f"no way to {endpoint.host}: {error.strerror or error}"}
    return report | {
        "remote": route.remote,
        "local": route.local,
        "interface": route.interface,
        "mtu": route.mtu,
        "why": route.why,
    }


def connect_report(text: str, *, service: str, version: int, timeout_ns: int) -> Report:
    """Connect once and negotiate, then close.  rtt_us: the TCP handshake, one round trip of the wire."""
    report: Report = {"service": service, "service_version": version}
    try:
        report["rtt_us"] = _handshake_us(parse_endpoint(text), timeout_ns)
        begun = time.monotonic_ns()
        with connect(
            text,
            service=service,
            version_min=version,
            version_max=version,
            max_frame_bytes=echo.MAX_FRAME_BYTES,
            deadline_ns=begun + timeout_ns,
        ) as client:
            report["connect_us"] = (time.monotonic_ns() - begun) / 1000
            report |= {
                "ok": True,
                "boot_nonce": f"{client.peer.boot_nonce:016x}",
                "max_frame_bytes": client.peer.max_frame_bytes,
            }
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


def render(report: Report) -> str:
    """The report as lines for a person."""
    lines = [
        f"ofl-transport {report['version']}, library {report['library']}",
        "capabilities: " + ", ".join(f"{name} {value}" for name, value in report["capabilities"].items()),
        "schemes: " + ", ".join(f"{name} {_yes(there)}" for name, there in report["schemes"].items()),
        "limits: " + ", ".join(f"{name} {_limit(value)}" for name, value in report["limits"].items()),
    ]
    lines += [
        f"interface {item['name']}: mtu {item['mtu']}, {', '.join(item['addresses'])}"
        for item in report["interfaces"]
    ]
    if route := report.get("route"):
        lines.append(_route_line(route))
    if attempt := report.get("connect"):
        lines.append(_connect_line(attempt))
    return "\n".join(lines)


def render_json(report: Report) -> str:
    """The report as one JSON object."""
    return json.dumps(report, indent=2)


def _route_line(route: Report) -> str:
    if not route["ok"]:
        return f"{route['endpoint']}: {route['error']}"
    way = f"{route['local']} ({route['interface']}, mtu {route['mtu']}) to {route['remote']}"
    return f"{route['endpoint']}: from {way}: {route['why']}"


def _connect_line(attempt: Report) -> str:
    if not attempt["ok"]:
        return f"connect: failed: {attempt['error']}"
    times = f"round trip {attempt['rtt_us']:.0f} us, connect with negotiation {attempt['connect_us']:.0f} us"
    return f"connect: {attempt['service']} version {attempt['service_version']} accepted; {times}"


def _yes(there: bool) -> str:
    return "yes" if there else "not in this build"


def _limit(value: int) -> str:
    return "unlimited" if value < 0 else str(value)
