"""A host as doctor asks it: files below a root, an environment, and the few questions that no file answers.

Each question is a field, so that a test can put a host together that does not exist.  Asks only; changes nothing, and
sends nothing but the TCP handshake of `connect`.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ofl import hostinfo, native
from ofl.doctor import installed, routes
from ofl.doctor.clock import Clock, read_clock

CONNECT_S_MAX = 60.0


def resolve(host: str, port: int, like: str | None) -> str:
    """The address that a name stands for, with its zone; of the family of `like` where one is.  Raises OSError."""
    family = 0 if like is None else (socket.AF_INET6 if ":" in like else socket.AF_INET)
    try:
        entries = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)
    except socket.gaierror:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    found = entries[0][4]
    address = str(found[0]).partition("%")[0]
    # Of a link-local address the interface is told apart from it, as a number.
    zone = int(found[3]) if len(found) > 3 else 0
    return f"{address}%{socket.if_indextoname(zone)}" if zone else address


def listen_fault(address: str, port: int) -> str:
    """Why nobody could listen there now; "" where one could.  Listens for no moment: it only binds."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(socket.getaddrinfo(address, port, family, socket.SOCK_STREAM)[0][4])
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return ""


def connect_fault(address: str, port: int, source: str | None, timeout_s: float) -> str:
    """Why no TCP connection came about within the time; "" where one did."""
    try:
        with socket.create_connection((address, port), timeout_s, (source, 0) if source else None):
            return ""
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()


def file_system(path: Path) -> tuple[int, int]:
    """Bytes of a file system and those free in it.  Raises OSError."""
    found = os.statvfs(path)
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


@dataclass(frozen=True)
class Host:
    """This host; of a test, one that does not exist.  root: where its /proc, /sys and /dev are found."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    machine: str = field(default_factory=lambda: os.uname().machine)
    now_s: Callable[[], float] = time.time
    interfaces: Callable[[], list[hostinfo.Interface]] = hostinfo.interfaces
    limits: Callable[[], dict[str, int]] = hostinfo.limits
    resolve: Callable[[str, int, str | None], str] = resolve
    way: Callable[[str, str | None], routes.Way] = routes.way_to
    rdma_choice: Callable[[str], tuple[bool, str]] = native.rdma_choice
    clock: Callable[[], Clock] = read_clock
    file_system: Callable[[Path], tuple[int, int]] = file_system
    listen_fault: Callable[[str, int], str] = listen_fault
    connect_fault: Callable[[str, int, str | None, float], str] = connect_fault
    library: Callable[[], installed.Library] = installed.library
    versions: Callable[[], dict[str, str]] = installed.versions

    def text(self, path: str) -> str:
        """A file of the kernel's; "" where there is none.  path: absolute, below the root."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
