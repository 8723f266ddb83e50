"""The report of `ofl probe` as lines for a person.  Pure."""

from collections.abc import Iterator

from ofl.probe import Report


def render(report: Report) -> str:
    """The report, most general first."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"ofl-transport {report['version']}, library {report['library']}, ABI {report['abi_version']}"
    for name, feature in report["features"].items():
        yield f"{name}: {_can(report, name) if feature['ok'] else 'no: ' + feature['missing']}"
    yield from _device_lines(report["rdma_devices"])
    for item in report["interfaces"]:
        yield f"interface {item['name']}: mtu {item['mtu']}, {', '.join(item['addresses'])}"
    yield "limits: " + ", ".join(f"{name} {_limit(value)}" for name, value in report["limits"].items())
    if route := report.get("route"):
        yield from _route_lines(route)
    if attempt := report.get("connect"):
        yield connect_line(attempt)


def _can(report: Report, feature: str) -> str:
    able = report["capabilities"].get(feature)
    if able is None:
        return "yes"
    placed = "by the peer's writes alone" if able["one_sided"] else "by the receiving CPU"
    placement = f"replies placed {placed}" if able["direct_placement"] else "no placement"
    return f"yes, wire version {able['wire_version']}, {able['parts_max']} parts a call, {placement}"


def _device_lines(devices: list[Report]) -> Iterator[str]:
    if not devices:
        yield "RDMA devices: none (the kernel shows none in /sys/class/infiniband)"
    for device in devices:
        for port in device["ports"]:
            facts = ", ".join(text for text in (port["state"], port["link_layer"], port["rate"]) if text)
            yield f"RDMA device {device['name']} port {port['number']}: {facts}"
            for gid in port["gids"]:
                where = f" on {gid['netdev']}" if gid["netdev"] else ""
                yield f"  GID {gid['index']}: {gid['gid']} ({gid['kind'] or 'kind unknown'}){where}"


def _route_lines(route: Report) -> Iterator[str]:
    if "error" in route:
        yield f"{route['endpoint']}: {route['error']}"
        return
    if "local" not in route:
        yield f"{route['endpoint']}: {route['why']}"
        return
    way = f"{route['local']} ({route['interface']}, mtu {route['mtu']}) to {route['remote']}"
    yield f"{route['endpoint']}: from {way}: {route['why']}"
    if "rdma" in route:
        yield f"RDMA from {route['local']}: {route['rdma']}"
    if "memlock" in route:
        yield f"memlock: {route['memlock']}"


def connect_line(attempt: Report) -> str:
    """What came of --connect."""
    if not attempt["ok"]:
        return f"connect: failed: {attempt['error']}"
    trip = f"round trip {attempt['rtt_us']:.0f} us, " if "rtt_us" in attempt else ""
    times = f"{trip}connect with negotiation {attempt['connect_us']:.0f} us"
    if "alive_ms" in attempt:
        times += f", alive for {attempt['alive_ms']} ms over RDMA"
    proof = "authenticated" if attempt["authenticated"] else "not authenticated"
    wire = f"over {attempt['wire']}, {proof}"
    return f"connect: {attempt['service']} version {attempt['service_version']} accepted {wire}; {times}"


def _limit(value: int) -> str:
    return "unlimited" if value < 0 else str(value)
