"""What this host offers a transport: interfaces, addresses, limits, and which address would reach a peer.

Only asks the kernel; sends nothing on any wire.
"""

import ctypes
import ipaddress
import resource
import socket
from dataclasses import dataclass
from pathlib import Path

from ofl.endpoint import Endpoint


class _SockAddr(ctypes.Structure):
    _fields_ = (("family", ctypes.c_ushort), ("data", ctypes.c_ubyte * 26))


class _IfAddrs(ctypes.Structure):
    pass


_IfAddrs._fields_ = (
    ("next", ctypes.POINTER(_IfAddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_SockAddr)),
)


@dataclass(frozen=True)
class Interface:
    """One network interface that has at least one IP address; mtu in bytes, 0 if unknown."""

    name: str
    mtu: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Route:
    """How a peer would be reached: the address it resolves to, ours, the interface, and why that one."""

    remote: str
    local: str
    interface: str
    mtu: int
    why: str


def interfaces() -> list[Interface]:
    """The interfaces in the kernel's order.  Raises OSError."""
    found: dict[str, list[str]] = {}
    libc = ctypes.CDLL(None, use_errno=True)
    head = ctypes.POINTER(_IfAddrs)()
    if libc.getifaddrs(ctypes.byref(head)) != 0:
        raise OSError(ctypes.get_errno(), "getifaddrs failed")
    try:
        entry = head
        while entry:
            record = entry.contents
            text = _address_text(record.address)
            if text is not None:
                found.setdefault(record.name.decode(), []).append(text)
            entry = record.next
    finally:
        libc.freeifaddrs(head)
    return [Interface(name, _mtu(name), tuple(addresses)) for name, addresses in found.items()]


def limits() -> dict[str, int]:
    """Soft limits of this process; -1 means unlimited."""
    return {
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "memlock_bytes": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    }


def route_to(endpoint: Endpoint) -> Route:
    """Ask the kernel which address would be used; nothing is sent.  Raises OSError (unknown hosts too)."""
    entries = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)
    if endpoint.bind:
        version = ipaddress.ip_address(endpoint.bind).version
        family = socket.AF_INET6 if version == 6 else socket.AF_INET
        entries = [entry for entry in entries if entry[0] == family] or entries
    family, kind, protocol, _, remote = entries[0]
    with socket.socket(family, kind, protocol) as probe:
        if endpoint.bind:
            probe.bind((endpoint.bind, 0))
        probe.connect(remote)
        local = str(probe.getsockname()[0])
    owner = next((item for item in interfaces() if local in item.addresses), Interface("?", 0, ()))
    why = "asked for by bind" if endpoint.bind else f"the kernel's route to {remote[0]} starts there"
    return Route(str(remote[0]), local, owner.name, owner.mtu, why)


def _address_text(pointer: "ctypes._Pointer[_SockAddr]") -> str | None:
    if not pointer:
        return None
    record = pointer.contents
    raw = bytes(record.data)
    if record.family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, raw[2:6])
    if record.family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, raw[6:22])
    return None


def _mtu(name: str) -> int:
    try:
        return int(Path("/sys/class/net", name, "mtu").read_text())
    except (OSError, ValueError):
        return 0
