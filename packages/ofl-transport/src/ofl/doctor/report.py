"""What doctor prints: lines for people, one JSON object for programs and other hosts.  Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ofl.doctor.findings import Facts, Finding, Result, exit_status
from ofl.doctor.peers import FORMAT


def document(command: str, facts: Facts, findings: Sequence[Finding]) -> dict[str, Any]:
    """The JSON object.  facts: what `--peer` on another host reads."""
    return {
        "format": FORMAT,
        "command": command,
        "exit_status": exit_status(findings),
        "findings": [finding.to_json() for finding in findings],
        "facts": facts,
    }


def render(command: str, facts: Facts, findings: Sequence[Finding]) -> str:
    """The findings as lines, then how many there are of each kind."""
    width = max((len(_name(finding)) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.result:<4}  {_name(finding):<{width}}  {finding.seen}")
        if finding.repair:
            lines.append(f"      {'':<{width}}  repair: {finding.repair}")
    counts = Counter(finding.result for finding in findings)
    shown = ", ".join(f"{counts[result]} {result}" for result in Result if counts[result])
    verdict = "something must be repaired" if exit_status(findings) else "nothing must be repaired"
    lines.append(f"{command} on {facts['host']}: {shown}: {verdict}")
    return "\n".join(lines)


def _name(finding: Finding) -> str:
    return f"{finding.check} {finding.peer}" if finding.peer else finding.check
