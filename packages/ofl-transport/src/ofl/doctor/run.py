"""The whole of an examination: facts, own checks, the comparison with every peer.  What every doctor command calls."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ofl.doctor.checks import HOST_CHECKS
from ofl.doctor.findings import Check, Facts, Finding, judge_all
from ofl.doctor.gather import Wanted, gather
from ofl.doctor.host import Host
from ofl.doctor.peers import PEER_CHECKS, read_report


def examine(
    host: Host,
    wanted: Wanted,
    *,
    peers: Iterable[Path] = (),
    checks: Sequence[Check] = (),
    more: Mapping[str, Any] | None = None,
) -> tuple[Facts, list[Finding]]:
    """Facts and findings.  checks, more: what a package adds to ours, its checks come first.

    Raises EndpointError on an endpoint that is none and ReportError on a file that is no report.
    """
    reports = [read_report(path) for path in peers]
    facts = gather(host, wanted) | dict(more or {})
    findings = judge_all((*checks, *HOST_CHECKS), facts)
    for theirs in reports:
        findings += judge_all(PEER_CHECKS, facts, theirs, peer=theirs["host"])
    return facts, findings
