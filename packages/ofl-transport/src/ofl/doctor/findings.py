"""What a check is and what it finds.  Pure.

A repair is a template among those that its check declares, so that the table of all checks in the documentation, which
is made of the declarations, cannot miss one.
"""

import enum
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Facts = dict[str, Any]
"""Plain JSON values by name; see `gather`."""
BROKEN = "report this with the output of --json: the check itself failed"
"""The repair where a check ends in an exception, which is a defect of ours."""


class Result(enum.StrEnum):
    """PASS: as it must be.  WARN: it works, at a price.  FAIL: repair it.  SKIP: not judged, for the reason given."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"


SEVERITY = (Result.SKIP, Result.PASS, Result.WARN, Result.FAIL)


@dataclass(frozen=True)
class Verdict:
    """What one judgement says.  repair: a template of the check's, `values` for its braces; "" where there is none."""

    result: Result
    seen: str
    repair: str = ""
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One check.  holds: what must be so, for people.  judge: facts in (between hosts: ours, theirs)."""

    name: str
    holds: str
    repairs: tuple[str, ...]
    judge: Callable[..., Verdict]


@dataclass(frozen=True)
class Finding:
    """What one check found.  peer: the host that was compared, "" for checks of this host alone."""

    check: str
    result: Result
    seen: str
    repair: str = ""
    peer: str = ""

    def to_json(self) -> dict[str, str]:
        """Its fields as texts."""
        return {
            "check": self.check,
            "peer": self.peer,
            "result": str(self.result),
            "seen": self.seen,
            "repair": self.repair,
        }


def passed(seen: str) -> Verdict:
    """As it must be."""
    return Verdict(Result.PASS, seen)


def skipped(reason: str) -> Verdict:
    """Not judged."""
    return Verdict(Result.SKIP, reason)


def warned(seen: str, repair: str, /, **values: object) -> Verdict:
    """It works, at a price."""
    return Verdict(Result.WARN, seen, repair, values)


def failed(seen: str, repair: str, /, **values: object) -> Verdict:
    """It must be repaired."""
    return Verdict(Result.FAIL, seen, repair, values)


def worst(verdicts: Sequence[Verdict], nothing: str) -> Verdict:
    """Of several things of one kind the worst; where all pass, what was seen of each.  nothing: the reason for SKIP."""
    if not verdicts:
        return skipped(nothing)
    found = max(verdicts, key=lambda verdict: SEVERITY.index(verdict.result))
    if found.result is not Result.PASS:
        return found
    return passed("; ".join(verdict.seen for verdict in verdicts if verdict.result is Result.PASS))


def judge_all(checks: Iterable[Check], *facts: Facts, peer: str = "") -> list[Finding]:
    """Every check in its order; one that raises has failed."""
    return [_judge(check, facts, peer) for check in checks]


def _judge(check: Check, facts: tuple[Facts, ...], peer: str) -> Finding:
    try:
        verdict = check.judge(*facts)
        if verdict.repair and verdict.repair not in check.repairs:
            raise LookupError(f"a repair that {check.name} does not declare: {verdict.repair}")
        repair = verdict.repair.format(**verdict.values)
    except Exception as error:
        return Finding(check.name, Result.FAIL, f"{type(error).__name__}: {error}", BROKEN, peer)
    return Finding(check.name, verdict.result, verdict.seen, repair, peer)


def exit_status(findings: Iterable[Finding]) -> int:
    """0: nothing must be repaired; 1: something must."""
    return int(any(finding.result is Result.FAIL for finding in findings))


def table(checks: Iterable[Check]) -> str:
    """The checks as a Markdown table, for docs/operations/doctor.md; `…` stands for what varies."""
    lines = ["| Check | What must hold | Repair |", "|---|---|---|"]
    for check in checks:
        repairs = "; or: ".join(_shown(repair) for repair in check.repairs) or "none: it only tells"
        lines.append(f"| `{check.name}` | {check.holds} | {repairs} |")
    return "\n".join(lines) + "\n"


def _shown(template: str) -> str:
    pieces = string.Formatter().parse(template)
    text = "".join(literal + ("…" if name is not None else "") for literal, name, _, _ in pieces)
    return text.replace("|", "\\|")
