"""The checks of addresses, routes, RDMA ports and listeners of one host.  Pure."""

from typing import Any

from ofl.doctor.findings import Check, Facts, Verdict, failed, passed, skipped, warned, worst
from ofl.doctor.gather import interface_of

RDMA_MTU_MAX = 4096
ETHERNET_MTU = 9000
"""Holds RDMA packets of RDMA_MTU_MAX with all their headers."""
RDMA_HEADER_BYTES = 96
"""What the kernel keeps free of an interface's MTU: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4 (iboe_get_mtu)."""

WILDCARDS = ("0.0.0.0", "::")

ADD_ADDRESS = "ip address add {address}/PREFIX dev INTERFACE, or name one of this host's own as bind: {own}"
ADD_ROUTE = "ip route replace {remote} dev {interface} src {source}"
NAME_HOST = "name an address in the endpoint, or add {host} to /etc/hosts"
START_PEER = (
    "start what is to listen on port {port} of {remote}, and let the port through every firewall between"
)
USE_RDMA_ADDRESS = (
    "ip address add {address}/PREFIX dev the network interface of an RDMA device, or name an address that is a "
    "GID: {own}"
)
PORT_UP = "ip link set dev {netdev} up, and look at the cable: rdma link show {device}/{port}"
USE_V2 = "load the driver with RoCE v2 on (cma_roce_mode -d {device} -p {port} -m 2), so that {address} has a v2 GID"
LIBRARY_OF_RDMA = "install libibverbs1 and the device's provider (rdma-core); ofl probe says: {why}"
SAME_MTU = "ip link set dev {netdev} mtu {mtu}, then ip link set dev {netdev} down and up"
LARGER_MTU = "ip link set dev {netdev} mtu {mtu} at both ends"
RAISE_MEMLOCK = (
    "ulimit -l {kib} (or unlimited; hard limit: memlock in /etc/security/limits.conf), LimitMEMLOCK=infinity in the "
    "systemd unit, docker run --ulimit memlock=-1"
)
OWN_ADDRESS = "ip address add {address}/PREFIX dev INTERFACE, or listen on one of this host's own: {own}"
FREE_PORT = "ss -ltnp 'sport = :{port}' shows who has it: end that, or listen on another port"


def _own(facts: Facts) -> str:
    return ", ".join(address for one in facts["interfaces"] for address in one["addresses"]) or "none"


def _network(facts: Facts) -> dict[str, Any] | None:
    """The endpoint where it is reached over a network."""
    endpoint: dict[str, Any] | None = facts["endpoint"]
    return None if endpoint is None or endpoint["scheme"] == "shm" else endpoint


_NO_NETWORK = "no endpoint over a network is given"
_NOT_HERE = "the bind address is not on this host: see bind-address"


def bind_address(facts: Facts) -> Verdict:
    """An interface of this host has it."""
    endpoint = _network(facts)
    if endpoint is None or not endpoint["bind"]:
        return skipped("no endpoint with a bind address is given")
    interface = interface_of(facts, endpoint["bind"])
    if interface is None:
        seen = f"no interface of this host has {endpoint['bind']}"
        return failed(seen, ADD_ADDRESS, address=endpoint["bind"], own=_own(facts))
    return passed(f"{endpoint['bind']} is on {interface['name']}")


def route(facts: Facts) -> Verdict:
    """Packets to the peer leave by the link that bind names."""
    endpoint = _network(facts)
    if endpoint is None:
        return skipped(_NO_NETWORK)
    if not endpoint["remote"]:
        return failed(endpoint["error"], NAME_HOST, host=endpoint["host"])
    source = endpoint["bind"]
    interface = interface_of(facts, source) if source else None
    if source and interface is None:
        return skipped(_NOT_HERE)
    name = interface["name"] if interface else "INTERFACE"
    values = {"remote": endpoint["remote"], "interface": name, "source": source or "ADDRESS"}
    if endpoint["error"]:
        return failed(endpoint["error"], ADD_ROUTE, **values)
    way = endpoint["way"]
    seen = f"{endpoint['remote']} is reached by {way['interface']} from {way['source']}"
    if interface is not None and way["interface"] not in (interface["name"], "lo"):
        return failed(f"{seen}, which is on {interface['name']}", ADD_ROUTE, **values)
    if way["gateway"] and endpoint["scheme"] == "rdma":
        values["interface"] = way["interface"]
        return warned(f"{seen} through the gateway {way['gateway']}: no direct link", ADD_ROUTE, **values)
    return passed(seen)


def reachable(facts: Facts) -> Verdict:
    """Somebody accepts a TCP connection there: RDMA is agreed on over one, too."""
    endpoint = _network(facts)
    if endpoint is None:
        return skipped(_NO_NETWORK)
    if endpoint["error"]:
        return skipped("there is no way to it: see route")
    if endpoint["connect"] is None:
        return skipped("no connection was asked for (--connect)")
    if endpoint["bind"] and interface_of(facts, endpoint["bind"]) is None:
        return skipped(_NOT_HERE)
    where = f"port {endpoint['port']} of {endpoint['remote']}"
    if endpoint["connect"]:
        seen = f"{where}: {endpoint['connect']}"
        return failed(seen, START_PEER, port=endpoint["port"], remote=endpoint["remote"])
    return passed(f"{where} accepts connections")


def _rdma_links(facts: Facts) -> list[dict[str, Any]]:
    return [link for link in facts["links"] if link["rdma"] is not None]


_NO_RDMA = "no rdma:// endpoint is given"
_NO_PORT = "no RDMA port has the address: see rdma-gid"


def rdma_gid(facts: Facts) -> Verdict:
    """A port has the address as a GID, and the library can use it."""

    def one(link: dict[str, Any]) -> Verdict:
        rdma = link["rdma"]
        if not link["interface"]:
            return skipped("the address is not on this host: see bind-address, listen-address")
        if not rdma["device"]:
            ports = [f"{found['address']} ({found['netdev']})" for found in facts["rdma_addresses"]]
            seen = f"no GID of any RDMA port stands for {link['address']}"
            own = ", ".join(ports) or "there is none: no RDMA device"
            return failed(seen, USE_RDMA_ADDRESS, address=link["address"], own=own)
        where = f"{link['address']} is GID {rdma['gid_index']} of {rdma['device']} port {rdma['port']}"
        if not rdma["possible"] and "ACTIVE" in rdma["state"]:
            return failed(f"{where}, which cannot be used", LIBRARY_OF_RDMA, why=rdma["choice"])
        return passed(where)

    return worst([one(link) for link in _rdma_links(facts)], _NO_RDMA)


def rdma_port(facts: Facts) -> Verdict:
    """Its link is up."""

    def one(link: dict[str, Any]) -> Verdict:
        rdma = link["rdma"]
        if not rdma["device"]:
            return skipped(_NO_PORT)
        where = f"{rdma['device']} port {rdma['port']} is {rdma['state']}"
        if "ACTIVE" in rdma["state"]:
            return passed(where)
        netdev = rdma["netdev"] or link["interface"]
        return failed(where, PORT_UP, netdev=netdev, device=rdma["device"], port=rdma["port"])

    return worst([one(link) for link in _rdma_links(facts)], _NO_RDMA)


def rdma_gid_type(facts: Facts) -> Verdict:
    """RoCE v2; an Infiniband port has no such kinds, and the kernel names none."""

    def one(link: dict[str, Any]) -> Verdict:
        rdma = link["rdma"]
        if not rdma["device"]:
            return skipped(_NO_PORT)
        where = f"the GID of {link['address']} is {rdma['kind'] or 'of a kind that the kernel does not name'}"
        if rdma["kind"] == "IB/RoCE v1":
            values = {"device": rdma["device"], "port": rdma["port"], "address": link["address"]}
            return warned(where, USE_V2, **values)
        return passed(where)

    return worst([one(link) for link in _rdma_links(facts)], _NO_RDMA)


def rdma_mtu_of(interface_mtu: int) -> int:
    """Bytes of the largest RDMA packet that an interface's MTU allows; 0 below the smallest."""
    sizes = [size for size in (256, 512, 1024, 2048, 4096) if size + RDMA_HEADER_BYTES <= interface_mtu]
    return max(sizes, default=0)


def rdma_mtu(facts: Facts) -> Verdict:
    """RDMA uses what the interface allows, and that is the most that RDMA can."""

    def one(link: dict[str, Any]) -> Verdict:
        rdma = link["rdma"]
        if not (rdma["device"] and rdma["mtu"] and link["mtu"]):
            return skipped("the MTU is not known: see rdma-gid")
        netdev, allowed = link["interface"], rdma_mtu_of(link["mtu"])
        seen = (
            f"{netdev} has an MTU of {link['mtu']}, and {rdma['device']} sends packets of {rdma['mtu']} bytes"
        )
        if rdma["mtu"] != allowed:
            # The interface as it is may be right; what RDMA agreed to with it is not.
            wanted = max(link["mtu"], ETHERNET_MTU if rdma["mtu"] > allowed else 0)
            return failed(f"{seen} where {allowed} fit", SAME_MTU, netdev=netdev, mtu=wanted)
        if allowed < RDMA_MTU_MAX:
            return warned(seen, LARGER_MTU, netdev=netdev, mtu=ETHERNET_MTU)
        return passed(seen)

    return worst([one(link) for link in _rdma_links(facts)], _NO_RDMA)


def memlock(facts: Facts) -> Verdict:
    """What RDMA registers counts as locked memory."""
    if not _rdma_links(facts):
        return skipped(_NO_RDMA)
    limit, needed = facts["memlock"]["limit_bytes"], facts["memlock"]["needed_bytes"]
    if facts["memlock"]["exempt"]:
        return passed("this process may lock at will (CAP_IPC_LOCK)")
    if 0 <= limit < needed:
        seen = f"this process may lock {limit} bytes, and {needed} are needed"
        return failed(seen, RAISE_MEMLOCK, kib=-(-needed // 1024))
    return passed("no limit" if limit < 0 else f"{limit} bytes, of which {needed} are needed")


_NO_LISTENER = "nothing is to listen here (--listen)"


def listen_address(facts: Facts) -> Verdict:
    """An interface of this host has it."""

    def one(asked: dict[str, Any]) -> Verdict:
        address = asked["address"]
        if asked["scheme"] == "shm" or address in WILDCARDS:
            return passed(asked["given"])
        if not address:
            return failed(asked["fault"], OWN_ADDRESS, address="ADDRESS", own=_own(facts))
        interface = interface_of(facts, address)
        if interface is None:
            seen = f"no interface of this host has {address}"
            return failed(seen, OWN_ADDRESS, address=address, own=_own(facts))
        return passed(f"{address} is on {interface['name']}")

    return worst([one(asked) for asked in facts["listen"]], _NO_LISTENER)


def listen_port(facts: Facts) -> Verdict:
    """Nobody else has it."""

    def one(asked: dict[str, Any]) -> Verdict:
        if asked["scheme"] == "shm":
            return skipped("a name of shared memory has no port")
        address = asked["address"]
        if not address or (address not in WILDCARDS and interface_of(facts, address) is None):
            return skipped("the address is not on this host: see listen-address")
        if asked["fault"]:
            return failed(f"{asked['given']}: {asked['fault']}", FREE_PORT, port=asked["port"])
        return passed(f"{asked['given']} is free")

    return worst([one(asked) for asked in facts["listen"]], _NO_LISTENER)


LINK_CHECKS = (
    Check(
        "bind-address",
        "an interface of this host has the endpoint's bind address",
        (ADD_ADDRESS,),
        bind_address,
    ),
    Check(
        "route",
        "packets to the endpoint leave by the link of the bind address, without a gateway for RDMA",
        (NAME_HOST, ADD_ROUTE),
        route,
    ),
    Check("reachable", "the endpoint accepts a TCP connection", (START_PEER,), reachable),
    Check(
        "rdma-gid",
        "a GID of an RDMA port stands for each address that `rdma://` is used from, and the port can be used",
        (USE_RDMA_ADDRESS, LIBRARY_OF_RDMA),
        rdma_gid,
    ),
    Check("rdma-port", "the port is ACTIVE", (PORT_UP,), rdma_port),
    Check("rdma-gid-type", "the GID is of RoCE v2; a warning", (USE_V2,), rdma_gid_type),
    Check(
        "rdma-mtu",
        "RDMA packets are as large as the interface's MTU allows; a warning where that is below 4096 bytes",
        (SAME_MTU, LARGER_MTU),
        rdma_mtu,
    ),
    Check("memlock", "as much memory may be locked as RDMA registers", (RAISE_MEMLOCK,), memlock),
    Check(
        "listen-address",
        "an interface of this host has each address to listen on",
        (OWN_ADDRESS,),
        listen_address,
    ),
    Check("listen-port", "each port to listen on is free", (FREE_PORT,), listen_port),
)
