"""Makes the facts: plain JSON values about this host, for the checks and for other hosts to be compared with.

Judges nothing.  What cannot be asked becomes a fact of its own, `error`, with the kernel's words.  Of a key file it
keeps the path and what is wrong with it, never what it holds.
"""

import ipaddress
import re
from dataclasses import asdict, dataclass
from typing import Any

import ofl
from ofl import rdma_devices
from ofl.contract import dspark_v1, engram_v1
from ofl.doctor.findings import Facts
from ofl.doctor.host import Host
from ofl.endpoint import Endpoint, parse_endpoint
from ofl.keys import KeyFileError, check_key

MEMLOCK_BYTES = 64 << 20
"""Locked memory where nobody says more: a 16 MiB message each way, 1.5 MiB a connection, and room for as much again."""
_CAP_IPC_LOCK = 14
_PATH_MTU = re.compile(r"path MTU (\d+)")
_MEMORY = ("MemAvailable", "SwapTotal", "SwapFree", "HugePages_Free", "Hugepagesize")
_PAGES = "HugePages_Free"


@dataclass(frozen=True)
class Wanted:
    """What the host is to do.

    role: "engine", "worker" or "host".  endpoint: of a peer that it connects to.  listen: endpoints that it is to
    listen on, while nobody does.  connect_s: how long a TCP connection may take, seconds; 0: none is made.
    memlock_bytes: what it registers at most.  tables_mib: of tables that it is to hold, 0 for none; huge_pages: in
    explicit ones.
    """

    role: str = "host"
    endpoint: str | None = None
    listen: tuple[str, ...] = ()
    key_file: str | None = None
    connect_s: float = 0.0
    memlock_bytes: int = MEMLOCK_BYTES
    tables_mib: int = 0
    huge_pages: bool = False


def gather(host: Host, wanted: Wanted) -> Facts:
    """All facts of a host.  Raises EndpointError on an endpoint that is none."""
    endpoint = None if wanted.endpoint is None else parse_endpoint(wanted.endpoint)
    listen = [parse_endpoint(text) for text in wanted.listen]
    interfaces = host.interfaces()
    facts: Facts = {
        "host": host.text("/proc/sys/kernel/hostname"),
        "role": wanted.role,
        "written_s": host.now_s(),
        "kernel": host.text("/proc/sys/kernel/osrelease"),
        "io_uring_disabled": host.text("/proc/sys/kernel/io_uring_disabled"),
        "machine": host.machine,
        "code_version": ofl.__version__,
        "packages": host.versions(),
        "contracts": {"dspark": dspark_v1.VERSION, "engram": engram_v1.VERSION},
        "library": asdict(host.library()),
        "clock": _clock(host),
        "shm": _shm(host),
        "memlock": _memlock(host, wanted.memlock_bytes),
        "memory": _memory(host) | {"tables_mib": wanted.tables_mib, "huge_pages": wanted.huge_pages},
        "interfaces": [
            {"name": one.name, "mtu": one.mtu, "addresses": list(one.addresses)} for one in interfaces
        ],
        "key_file": None if wanted.key_file is None else _key_file(wanted.key_file),
        "endpoint": None if endpoint is None else _endpoint(host, endpoint, wanted.connect_s),
        "listen": [_listen(host, one) for one in listen],
    }
    facts["rdma_addresses"] = _rdma_addresses(host)
    facts["links"] = [_link(host, facts, *own) for own in _own_addresses(facts, endpoint, listen)]
    return facts


def interface_of(facts: Facts, address: str) -> dict[str, Any] | None:
    """The interface of this host that has an address."""
    wanted = _bare(address)
    for interface in facts["interfaces"]:
        if any(_bare(own) == wanted for own in interface["addresses"]):
            return dict(interface)
    return None


def _bare(address: str) -> str:
    return str(ipaddress.ip_address(address.partition("%")[0]))


def _clock(host: Host) -> dict[str, Any]:
    try:
        return asdict(host.clock()) | {"error": ""}
    except OSError as error:
        return {"error": error.strerror or str(error)}


def _shm(host: Host) -> dict[str, Any]:
    try:
        total, free = host.file_system(host.root / "dev/shm")
    except OSError as error:
        return {"error": error.strerror or str(error)}
    return {"total_bytes": total, "free_bytes": free, "error": ""}


def _memlock(host: Host, needed: int) -> dict[str, Any]:
    fields = dict(line.split(":", 1) for line in host.text("/proc/self/status").splitlines() if ":" in line)
    capabilities = int(fields.get("CapEff", "0").strip(), 16)
    return {
        "limit_bytes": host.limits()["memlock_bytes"],
        "exempt": bool(capabilities >> _CAP_IPC_LOCK & 1),
        "needed_bytes": needed,
    }


def _memory(host: Host) -> dict[str, Any]:
    """Kibibytes, but for numbers of huge pages; -1 where the kernel does not say."""
    found = dict.fromkeys(_MEMORY, -1)
    for line in host.text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name in found and rest.split() and rest.split()[0].isdigit():
            found[name] = int(rest.split()[0])
    return dict(found)


def _key_file(path: str) -> dict[str, str]:
    try:
        check_key(path)
    except KeyFileError as error:
        return {"path": path, "error": str(error)}
    return {"path": path, "error": ""}


def _endpoint(host: Host, endpoint: Endpoint, connect_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {"given": str(endpoint), "scheme": endpoint.scheme, "bind": endpoint.bind}
    if endpoint.scheme == "shm":
        return found
    found |= {"host": endpoint.host, "port": endpoint.port, "remote": "", "error": "", "connect": None}
    try:
        remote = host.resolve(endpoint.host, endpoint.port, endpoint.bind)
    except OSError as error:
        return found | {"error": f"{endpoint.host} has no address: {error.strerror or error}"}
    found["remote"] = remote
    try:
        found["way"] = asdict(host.way(remote, endpoint.bind))
    except OSError as error:
        found["error"] = f"no way to {remote}: {(error.strerror or str(error)).lower()}"
    if connect_s > 0:
        found["connect"] = host.connect_fault(remote, endpoint.port, endpoint.bind, connect_s)
    return found


def _listen(host: Host, endpoint: Endpoint) -> dict[str, Any]:
    """fault: why nobody could listen there now."""
    found = {"given": str(endpoint), "scheme": endpoint.scheme, "address": "", "port": endpoint.port}
    if endpoint.scheme == "shm":
        return found | {"fault": ""}
    try:
        address = host.resolve(endpoint.host, endpoint.port, None)
    except OSError as error:
        return found | {"fault": f"{endpoint.host} has no address: {error.strerror or error}"}
    return found | {"address": address, "fault": host.listen_fault(address, endpoint.port)}


def _own_addresses(facts: Facts, endpoint: Endpoint | None, listen: list[Endpoint]) -> list[tuple[str, bool]]:
    """Addresses of this host that traffic will have, each once, and whether RDMA is to be used from it."""
    found: dict[str, bool] = {}
    if endpoint is not None and endpoint.scheme != "shm":
        own = endpoint.bind or facts["endpoint"].get("way", {}).get("source", "")
        if own:
            found[own] = endpoint.scheme == "rdma"
    for asked, answer in zip(listen, facts["listen"], strict=True):
        address = answer["address"]
        if address and not ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
            found[address] = found.get(address, False) or asked.scheme == "rdma"
    return list(found.items())


def _link(host: Host, facts: Facts, address: str, rdma: bool) -> dict[str, Any]:
    """One end of a link: the address, its interface, and what RDMA makes of it where it is to be used."""
    interface = interface_of(facts, address)
    return {
        "address": address,
        "interface": interface["name"] if interface else "",
        "mtu": interface["mtu"] if interface else 0,
        "rdma": _rdma(host, address) if rdma else None,
    }


def _rdma(host: Host, address: str) -> dict[str, Any]:
    """The port that stands for an address.  mtu: of its packets, 0 where it is not known."""
    found = rdma_devices.find(address, host.root / "sys/class/infiniband")
    if found is None:
        return {"device": ""}
    device, number, index = found
    port = next(
        port
        for one in rdma_devices.devices(host.root / "sys/class/infiniband")
        for port in one.ports
        if (one.name, port.number) == (device, number)
    )
    gid = next(gid for gid in port.gids if gid.index == index)
    possible, text = host.rdma_choice(address)
    mtu = _PATH_MTU.search(text) if possible else None
    return {
        "device": device,
        "port": number,
        "gid_index": index,
        "kind": gid.kind,
        "netdev": gid.netdev,
        "state": port.state,
        "mtu": int(mtu[1]) if mtu else 0,
        "choice": text,
        "possible": possible,
    }


def _rdma_addresses(host: Host) -> list[dict[str, str]]:
    """Addresses that are a GID of some port, for repairs that name them."""
    found = {}
    for device in rdma_devices.devices(host.root / "sys/class/infiniband"):
        for port in device.ports:
            for gid in port.gids:
                address = ipaddress.IPv6Address(gid.gid)
                shown = str(address.ipv4_mapped or address)
                found[shown] = {"address": shown, "device": device.name, "netdev": gid.netdev}
    return list(found.values())
