"""The checks between two hosts: our facts beside those that doctor printed there.  Pure but for `read_report`.

A report comes from another host, perhaps of another version: what it lacks is not compared, and what is no report is
refused by name.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ofl.doctor.findings import Check, Facts, Verdict, failed, passed, skipped, warned, worst
from ofl.files import FileTooLongError, NotRegularFileError, open_plain, read_bounded

FORMAT = 1
REPORT_BYTES_MAX = 1 << 20
SKEW_S_MAX = 2.0
"""Clocks may differ by as much before it is told; a report comes over ssh within less."""

SAME_VERSION = "pip install {package}=={version} on {host}"
SAME_CONTRACT = "install packages of one release on both hosts: pip install --upgrade {package} on {host}"
SAME_LIBRARY = "pip install --force-reinstall --no-deps ofl-transport=={version} on both hosts"
SAME_IDENTITY = "export {setting}={value} on the engine's hosts, or serve the drafter that has the other one"
SAME_SETTING = "export {setting}={value} on {host}"
SAME_MTU = "ip link set dev {interface} mtu {mtu} on {host}"
SAME_KIND = "give {address} on {host} a RoCE v2 GID: cma_roce_mode -d {device} -p {port} -m 2"
SAME_CLOCK = "timedatectl set-ntp true (or chrony) on both hosts"
FRESH_REPORT = "make the report anew, straight into its file: ssh {host} COMMAND --json > {path}"


class ReportError(ValueError):
    """The file is no report of doctor's; the text names file and fault."""


def read_report(path: Path) -> Facts:
    """The facts in a report, with `path` and `arrived_s`, when the file was last written.  Raises ReportError."""
    try:
        with open_plain(path) as file:
            arrived_s = os.fstat(file.fileno()).st_mtime
            data = read_bounded(file, REPORT_BYTES_MAX)
    except NotRegularFileError:
        raise ReportError(f"{path} is not a regular file") from None
    except FileTooLongError:
        raise ReportError(f"{path} has more than {REPORT_BYTES_MAX} bytes, which no report has") from None
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from None
    return parse_report(data, str(path)) | {"path": str(path), "arrived_s": arrived_s}


def parse_report(data: bytes, name: str) -> Facts:
    """The facts in the bytes of a report.  Raises ReportError."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ReportError(f"{name} is not JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReportError(f"{name} is no report of doctor --json, format {FORMAT}")
    facts = document.get("facts")
    if not isinstance(facts, dict) or not isinstance(facts.get("host"), str):
        raise ReportError(f"{name}: facts.host is not a text")
    return facts


# --- what a report may lack ---


def _mapping(facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = facts.get(name)
    return value if isinstance(value, dict) else {}


def _texts(facts: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: value for key, value in _mapping(facts, name).items() if isinstance(value, str)}


def _links(facts: Facts) -> list[dict[str, Any]]:
    """Those whose address is on its host: of others bind-address tells."""
    found = facts.get("links")
    links = found if isinstance(found, list) else []
    return [link for link in links if isinstance(link, dict) and link.get("interface")]


def _number(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return value if type(value) is int else 0


def _order(version: str) -> list[tuple[int, str]]:
    """Sorts versions well enough to say which host is behind."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in version.split(".")]


# --- the comparisons ---


def versions(ours: Facts, theirs: Facts) -> Verdict:
    """Packages that both hosts have are of one version; torch is each host's own matter."""
    mine, other = _texts(ours, "packages"), _texts(theirs, "packages")
    shared = sorted(set(mine) & set(other) - {"torch"})
    found = []
    for name in shared:
        if mine[name] == other[name]:
            found.append(passed(f"{name} {mine[name]}"))
            continue
        newer = max(mine[name], other[name], key=_order)
        host = ours["host"] if mine[name] != newer else theirs["host"]
        seen = f"{name} is {mine[name]} on {ours['host']} and {other[name]} on {theirs['host']}"
        found.append(failed(seen, SAME_VERSION, package=name, version=newer, host=host))
    return worst(found, "the two hosts have no package in common")


def contracts(ours: Facts, theirs: Facts) -> Verdict:
    """Both speak the same versions of the service contracts."""
    mine, other = _mapping(ours, "contracts"), _mapping(theirs, "contracts")
    found = []
    for name in sorted(set(mine) & set(other)):
        if mine[name] == other[name]:
            found.append(passed(f"{name}-v{mine[name]}"))
            continue
        seen = f"{name} is version {mine[name]} on {ours['host']} and {other[name]!r} on {theirs['host']}"
        behind = theirs if _number(other, name) < _number(mine, name) else ours
        found.append(failed(seen, SAME_CONTRACT, package="ofl-transport", host=behind["host"]))
    return worst(found, "the report names no contract")


def libraries(ours: Facts, theirs: Facts) -> Verdict:
    """One version for one machine is one file."""
    mine, other = _texts(ours, "library"), _texts(theirs, "library")
    if not (mine.get("sha256") and other.get("sha256")):
        return skipped("one of the hosts has no library: see native-library")
    if not (mine.get("machine") and other.get("machine")):
        return skipped("one of the reports does not say for which machine its library is")
    if mine["machine"] != ours["machine"] or other["machine"] != theirs.get("machine"):
        return skipped("one of the libraries is for another machine: see native-library")
    if mine["machine"] != other["machine"]:
        return passed(f"built for {mine['machine']} and {other['machine']}, each for its own")
    if ours["code_version"] != theirs.get("code_version"):
        return skipped("the versions differ: see peer-versions")
    if mine["sha256"] != other["sha256"]:
        seen = f"libofl.so has sha256 {mine['sha256']} on {ours['host']} and {other['sha256']} on {theirs['host']}"
        return failed(seen, SAME_LIBRARY, version=ours["code_version"])
    return passed(f"both have sha256 {mine['sha256']}")


def identities(ours: Facts, theirs: Facts) -> Verdict:
    """Engines are configured with the drafter that the worker serves, all with the same one."""
    mine, other = _texts(ours, "identities"), _texts(theirs, "identities")
    found = []
    for name in sorted(set(mine) & set(other)):
        if mine[name] == other[name]:
            found.append(passed(f"{name} {mine[name]}"))
            continue
        # The worker's drafter is what there is; an engine's setting is what can be wrong.
        right = mine[name] if ours.get("role") == "worker" else other[name]
        seen = f"{name} is {mine[name]} on {ours['host']} and {other[name]} on {theirs['host']}"
        setting = f"VLLM_DSPARK_REMOTE_{name.upper()}"
        found.append(failed(seen, SAME_IDENTITY, setting=setting, value=right))
    return worst(found, "no drafter is named on both hosts")


def settings(ours: Facts, theirs: Facts) -> Verdict:
    """What all ranks of one engine must have alike."""
    mine, other = _texts(ours, "alike"), _texts(theirs, "alike")
    if not (mine and other):
        return skipped("not both hosts are an engine's")
    found = []
    for name in sorted(set(mine) | set(other)):
        here, there = mine.get(name, "unset"), other.get(name, "unset")
        if here == there:
            found.append(passed(f"{name}={here}"))
            continue
        seen = f"{name} is {here} on {ours['host']} and {there} on {theirs['host']}"
        found.append(failed(seen, SAME_SETTING, setting=name, value=here, host=theirs["host"]))
    return worst(found, "no setting must be alike")


def _pairs(ours: Facts, theirs: Facts) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Our end and theirs of every link between the two: one side's endpoint names the other's address."""
    for here in _links(ours):
        for there in _links(theirs):
            reached = _mapping(ours, "endpoint").get("remote") == there.get("address")
            reaching = _mapping(theirs, "endpoint").get("remote") == here.get("address")
            if (reached and _is_own(ours, here)) or (reaching and _is_own(theirs, there)):
                yield here, there


def _is_own(facts: Facts, link: Mapping[str, Any]) -> bool:
    """Whether the endpoint of these facts is reached from that address."""
    endpoint = _mapping(facts, "endpoint")
    source = _mapping(endpoint, "way").get("source")
    return link.get("address") == (endpoint.get("bind") or source)


_NO_LINK = (
    "the reports name no link between the two: give the endpoint here and --listen there, or the other way"
)


def mtus(ours: Facts, theirs: Facts) -> Verdict:
    """Both ends of a link have one MTU, on the wire and for RDMA."""
    found = []
    for here, there in _pairs(ours, theirs):
        sizes = (_number(here, "mtu"), _number(there, "mtu"))
        rdma = (_number(_mapping(here, "rdma"), "mtu"), _number(_mapping(there, "rdma"), "mtu"))
        ends = f"{here.get('address')} and {there.get('address')}"
        if sizes[0] != sizes[1]:
            small, host = (here, ours["host"]) if sizes[0] < sizes[1] else (there, theirs["host"])
            seen = f"the MTUs of {ends} are {sizes[0]} and {sizes[1]}"
            found.append(failed(seen, SAME_MTU, interface=small.get("interface"), mtu=max(sizes), host=host))
        elif all(rdma) and rdma[0] != rdma[1]:
            small, host = (here, ours["host"]) if rdma[0] < rdma[1] else (there, theirs["host"])
            seen = f"RDMA packets of {ends} are {rdma[0]} and {rdma[1]} bytes"
            found.append(failed(seen, SAME_MTU, interface=small.get("interface"), mtu=sizes[0], host=host))
        else:
            found.append(passed(f"{ends}: {sizes[0]}, RDMA {rdma[0]}"))
    return worst(found, _NO_LINK)


def gid_types(ours: Facts, theirs: Facts) -> Verdict:
    """RoCE v1 and v2 do not hear each other."""
    found = []
    for here, there in _pairs(ours, theirs):
        kinds = [str(_mapping(end, "rdma").get("kind", "")) for end in (here, there)]
        if not all(kinds):
            continue
        if kinds[0] == kinds[1]:
            found.append(passed(f"both ends are {kinds[0]}"))
            continue
        old, host = (here, ours["host"]) if kinds[0] != "RoCE v2" else (there, theirs["host"])
        rdma = _mapping(old, "rdma")
        seen = f"{here.get('address')} is {kinds[0]} and {there.get('address')} is {kinds[1]}"
        values = {"address": old.get("address"), "host": host}
        found.append(failed(seen, SAME_KIND, device=rdma.get("device"), port=rdma.get("port"), **values))
    return worst(found, "the reports name no RDMA link between the two")


def clocks(ours: Facts, theirs: Facts) -> Verdict:
    """The report was made as its file was written: earlier by that host's clock is a clock or a copy that is late."""
    made, arrived = theirs.get("written_s"), theirs.get("arrived_s")
    if not isinstance(made, int | float) or not isinstance(arrived, int | float):
        return skipped("the report does not say when it was made")
    ahead = made - arrived
    host = theirs["host"]
    if ahead > SKEW_S_MAX:
        return failed(
            f"the clock of {host} is ahead of {ours['host']}'s by {ahead:.0f} s at least", SAME_CLOCK
        )
    if ahead < -SKEW_S_MAX:
        seen = f"the report of {host} is {-ahead:.0f} s older than its file: a clock that is behind, or a later copy"
        return warned(seen, FRESH_REPORT, host=host, path=theirs.get("path", "FILE"))
    return passed(f"within {SKEW_S_MAX:g} s of each other when the report was made")


PEER_CHECKS = (
    Check("peer-versions", "packages that both hosts have are of one version", (SAME_VERSION,), versions),
    Check(
        "peer-contracts", "both have the same versions of the service contracts", (SAME_CONTRACT,), contracts
    ),
    Check(
        "peer-library",
        "one version of `libofl.so` for one machine has one digest",
        (SAME_LIBRARY,),
        libraries,
    ),
    Check("peer-identities", "engines and worker name the same drafter", (SAME_IDENTITY,), identities),
    Check("peer-settings", "settings that all ranks must have alike are alike", (SAME_SETTING,), settings),
    Check("peer-mtu", "both ends of a link have one MTU, and RDMA packets of one size", (SAME_MTU,), mtus),
    Check("peer-gid-type", "both ends of a link have GIDs of one RoCE version", (SAME_KIND,), gid_types),
    Check(
        "peer-clock",
        "the clocks of both hosts agree within 2 s; a warning where the report may only be an old copy",
        (SAME_CLOCK, FRESH_REPORT),
        clocks,
    ),
)
