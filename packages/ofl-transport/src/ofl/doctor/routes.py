"""Which way packets to an address would take, as `ip route get` says it: asked of the kernel, nothing is sent.

A socket's own address does not tell: packets from the address of one link may leave by another.
"""

import ipaddress
import os
import socket
import struct
from dataclasses import dataclass

_HEADER = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_NEW_ROUTE, _GET_ROUTE, _ERROR, _REQUEST = 24, 26, 2, 1
_DST, _SRC, _OIF, _GATEWAY, _PREFSRC = 1, 2, 4, 5, 7
WAIT_S = 2.0
"""The kernel answers at once; a bound all the same."""


@dataclass(frozen=True)
class Way:
    """interface: by which packets leave.  gateway: "" on a direct link.  source: the address they come from."""

    interface: str
    gateway: str
    source: str


def way_to(remote: str, source: str | None) -> Way:
    """The way to an address, from one of ours where it is given.  Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(WAIT_S)
        kernel.sendto(request(remote, source), (0, 0))
        return parse(kernel.recv(65536), source)


def request(remote: str, source: str | None) -> bytes:
    """The message that asks for it.  remote, source: addresses; an IPv6 zone names the interface."""
    bare, _, zone = remote.partition("%")
    there = ipaddress.ip_address(bare)
    bits = 8 * len(there.packed)
    attributes = _attribute(_DST, there.packed)
    source_bits = 0
    if source is not None:
        here = ipaddress.ip_address(source.partition("%")[0])
        if here.version != there.version:
            raise OSError(f"{source} and {remote} are addresses of two kinds")
        attributes += _attribute(_SRC, here.packed)
        source_bits = bits
    if zone:
        attributes += _attribute(_OIF, struct.pack("=I", socket.if_nametoindex(zone)))
    family = socket.AF_INET6 if there.version == 6 else socket.AF_INET
    body = _ROUTE.pack(family, bits, source_bits, 0, 0, 0, 0, 0, 0) + attributes
    return _HEADER.pack(_HEADER.size + len(body), _GET_ROUTE, _REQUEST, 1, 0) + body


def parse(message: bytes, source: str | None) -> Way:
    """The kernel's answer.  Raises OSError, also where it is none."""
    try:
        size, kind, _, _, _ = _HEADER.unpack_from(message)
        if kind == _ERROR:
            number = -struct.unpack_from("=i", message, _HEADER.size)[0]
            raise OSError(number, os.strerror(number))
        found = _attributes(message[_HEADER.size + _ROUTE.size : size])
        (index,) = struct.unpack("=I", found[_OIF])
        if kind != _NEW_ROUTE:
            raise OSError(f"the kernel answered with message {kind}")
        gateway = str(ipaddress.ip_address(found[_GATEWAY])) if _GATEWAY in found else ""
        chosen = str(ipaddress.ip_address(found[_PREFSRC])) if _PREFSRC in found else ""
    except (struct.error, KeyError, ValueError):
        raise OSError("the kernel's answer about a route cannot be read") from None
    return Way(socket.if_indextoname(index), gateway, source or chosen)


def _attribute(kind: int, data: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data + bytes(-len(data) % 4)


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if size < _ATTRIBUTE.size:
            raise ValueError("an attribute without a length")
        found[kind] = data[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3
    return found
