"""The RDMA devices that the kernel shows in /sys/class/infiniband.  Reads only; needs no libibverbs."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/class/infiniband")
_CHOICE = re.compile(r"(\S+) port (\d+) GID (\d+) ")
_ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


@dataclass(frozen=True)
class Gid:
    """One address of a port.  kind: "RoCE v2", "IB/RoCE v1"; netdev: its network interface, "" where there is none."""

    index: int
    gid: str
    kind: str
    netdev: str


@dataclass(frozen=True)
class Port:
    """One port.  state: as the kernel says it, "4: ACTIVE"; rate: with its unit."""

    number: int
    state: str
    link_layer: str
    rate: str
    gids: tuple[Gid, ...]


@dataclass(frozen=True)
class Device:
    """One device and its ports."""

    name: str
    ports: tuple[Port, ...]


def devices(root: Path = ROOT) -> list[Device]:
    """What is there, by name; an empty list where the kernel has no RDMA."""
    if not root.is_dir():
        return []
    return [Device(folder.name, _ports(folder / "ports")) for folder in sorted(root.iterdir())]


def chosen(choice: str) -> tuple[str, int, int] | None:
    """Device, port and GID index that the library has chosen, in the words of `ofl.native.rdma_choice`; None: none."""
    found = _CHOICE.match(choice)
    return (found[1], int(found[2]), int(found[3])) if found else None


def find(address: str, root: Path = ROOT) -> tuple[str, int, int] | None:
    """Device, port and GID index that carry an IP address as their GID, whether or not they can be used; None: none do.

    A port that is ACTIVE goes before one that is not, and RoCE v2 before v1.
    """
    bare = ipaddress.ip_address(address.partition("%")[0])
    wanted = bare if bare.version == 6 else ipaddress.ip_address(f"::ffff:{bare}")
    found = [
        (not port.state.endswith("ACTIVE"), gid.kind != "RoCE v2", device.name, port.number, gid.index)
        for device in devices(root)
        for port in device.ports
        for gid in port.gids
        if ipaddress.ip_address(gid.gid) == wanted
    ]
    return min(found)[2:] if found else None


def _ports(folder: Path) -> tuple[Port, ...]:
    numbers = sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())
    return tuple(_port(folder / str(number), number) for number in numbers)


def _port(folder: Path, number: int) -> Port:
    indices = sorted(int(path.name) for path in (folder / "gids").glob("*") if path.name.isdigit())
    gids = (_gid(folder, index) for index in indices)
    return Port(
        number,
        _text(folder / "state"),
        _text(folder / "link_layer"),
        _text(folder / "rate"),
        tuple(gid for gid in gids if gid.gid not in ("", _ZERO_GID)),
    )


def _gid(port: Path, index: int) -> Gid:
    attributes = port / "gid_attrs"
    return Gid(
        index,
        _text(port / "gids" / str(index)),
        _text(attributes / "types" / str(index)),
        _text(attributes / "ndevs" / str(index)),
    )


def _text(path: Path) -> str:
    """A file of one line; "" where the kernel refuses, as it does for entries of a GID table that are not in use."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
