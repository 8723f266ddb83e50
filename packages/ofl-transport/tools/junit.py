"""JUnit reports of checks that are no pytest.  Owns their format; judges nothing."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """One check: it held unless `failure` or `skipped`, texts for a reader, is not empty.  `seconds` it took."""

    group: str
    name: str
    seconds: float = 0.0
    failure: str = ""
    skipped: str = ""


def write(path: Path, suite: str, cases: Sequence[Case]) -> None:
    """Write a report; raises ValueError for one without a case, which would read like success."""
    if not cases:
        raise ValueError("a report without a case says nothing")
    root = ElementTree.Element("testsuites")
    failures = sum(1 for case in cases if case.failure)
    skipped = sum(1 for case in cases if case.skipped)
    element = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": suite,
            "tests": str(len(cases)),
            "failures": str(failures),
            "errors": "0",
            "skipped": str(skipped),
        },
    )
    for case in cases:
        one = ElementTree.SubElement(
            element, "testcase", classname=case.group, name=case.name, time=f"{case.seconds:.3f}"
        )
        if case.failure:
            message = printable(case.failure.partition("\n")[0])
            ElementTree.SubElement(one, "failure", message=message).text = printable(case.failure)
        if case.skipped:
            ElementTree.SubElement(one, "skipped", message=printable(case.skipped))
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def read(path: Path, prefix: str) -> list[Case]:
    """The cases of a report that a test program wrote, their groups put behind a prefix."""
    cases = []
    for one in ElementTree.parse(path).getroot().iter("testcase"):
        failure, skipped = one.find("failure"), one.find("skipped")
        cases.append(
            Case(
                group=f"{prefix}.{one.attrib['classname']}",
                name=one.attrib["name"],
                seconds=float(one.attrib["time"]),
                failure="" if failure is None else (failure.text or failure.attrib["message"]).strip(),
                skipped="" if skipped is None else skipped.attrib["message"],
            )
        )
    return cases


def printable(text: str) -> str:
    """The text without the control characters that XML cannot hold."""
    return "".join(letter if letter >= " " or letter in "\n\t" else "?" for letter in text)


def summary(cases: Sequence[Case]) -> str:
    """One line of counts."""
    failed = sum(1 for case in cases if case.failure)
    skipped = sum(1 for case in cases if case.skipped)
    return f"{len(cases) - failed - skipped} passed, {failed} failed, {skipped} skipped"
