"""Check docs/operations/coverage.md against the JUnit reports of the test sessions: `check_coverage.py REPORT...`.

Owns how the inventory is read: tables of `Name | What it must do | Proof`, where a proof is one or more tests
(`file.py::test` in backticks) or `Excluded: ` and a reason.  Standard library only.  Must never run a test.

A test without brackets means all of its cases, at least one.  What several reports hold must have passed in one of
them and failed in none.  A test followed by `(where there is PROGRAM)` may be skipped for lack of that program, which
its reason names, as long as another test of its row passed.
"""

import argparse
import ast
import re
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = Path("docs", "operations", "coverage.md")
HEAD = ("Name", "What it must do", "Proof")
EXCLUDED = "Excluded: "
PENDING = "pending"
CODE = re.compile(r"`([^`]+)`")
PROOF = re.compile(r"`([^`]+::[^`]+)`(?: \(where there is ([\w-]+)\))?")


class Outcome(IntEnum):
    """Of one test case; in several reports, or in one report twice, the greatest counts."""

    SKIPPED = 0
    PASSED = 1
    FAILED = 2


Cases = dict[tuple[str, str], tuple[Outcome, str]]
"""Outcome and reason of a skip, by JUnit's class name (the file, dotted, and classes) and name (with brackets)."""


@dataclass(frozen=True)
class Row:
    """names: what stands in backticks in the first column, or else its text.  line: from 1.

    tests: as written, with the program without which one may be skipped, or "".
    """

    line: int
    names: tuple[str, ...]
    must: str
    tests: Mapping[str, str]
    reason: str
    pending: bool


@dataclass(frozen=True)
class Suite:
    """What there is to run.  files: the test files below root."""

    root: Path
    files: tuple[Path, ...]

    @classmethod
    def of(cls, root: Path) -> "Suite":
        """The files in which pytest looks for tests, as the project's configuration has it."""
        with (root / "pyproject.toml").open("rb") as file:
            folders = tomllib.load(file)["tool"]["pytest"]["ini_options"]["testpaths"]
        found = [path for folder in folders for path in sorted((root / folder).rglob("test_*.py"))]
        return cls(root, tuple(found))

    def named(self, file: str) -> list[Path]:
        """The file of this path below root, or else all whose paths end with it."""
        if (whole := self.root / file) in self.files:
            return [whole]
        return [path for path in self.files if path.as_posix().endswith(f"/{file}")]


def main(argv: list[str] | None = None) -> int:
    """Print one line a problem and a summary; 1 where there is a problem."""
    parser = argparse.ArgumentParser(description="Check the coverage inventory against reports of the tests.")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the repository")
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT", help="a JUnit file of pytest")
    options = parser.parse_args(argv)
    rows, problems = read_rows((options.root / DOCUMENT).read_text(encoding="utf-8"))
    cases, unread = read_reports(options.reports)
    problems += unread
    suite, proven, left_out = Suite.of(options.root), 0, set[str]()
    for row in rows:
        found, lacking = check_row(row, cases, suite)
        proven += bool(row.tests) and not found
        left_out |= lacking
        problems += [f"line {row.line}: {', '.join(row.names)}: {clause}" for clause in found]
    for problem in problems:
        print(f"coverage: {problem}")
    tests = len({test for row in rows for test in row.tests})
    excluded = sum(bool(row.reason) for row in rows)
    not_run = f" ({len(left_out)} of them not run here, for lack of a program)" if left_out else ""
    print(
        f"coverage: {len(rows)} rows, {proven} proven by {tests} tests{not_run}, {excluded} excluded, "
        f"{len(problems)} problems"
    )
    return 1 if problems else 0


# --- the document ---


def read_rows(text: str) -> tuple[list[Row], list[str]]:
    """The rows of every table, and what is wrong with the document itself."""
    rows: list[Row] = []
    problems: list[str] = []
    first_seen: dict[str, int] = {}
    lines_of_table = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            lines_of_table = 0
            continue
        lines_of_table += 1
        cells = tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        if lines_of_table == 1 and cells != HEAD:
            problems.append(f"line {number}: a table's head is not | {' | '.join(HEAD)} |")
        elif lines_of_table <= 2:
            continue
        elif len(cells) != len(HEAD):
            problems.append(f"line {number}: {len(cells)} columns where {len(HEAD)} are needed")
        else:
            row = _row(number, cells)
            for name in row.names:
                if name in first_seen:
                    problems.append(f"line {number}: {name} has a row already, line {first_seen[name]}")
                first_seen.setdefault(name, number)
            rows.append(row)
    if not rows:
        problems.append("the document has no rows")
    return rows, problems


def _row(number: int, cells: Sequence[str]) -> Row:
    name, must, proof = cells
    pending = re.search(rf"\b{PENDING}\b", CODE.sub("", proof)) is not None
    reason = proof.removeprefix(EXCLUDED).strip() if proof.startswith(EXCLUDED) else ""
    tests = {} if reason else dict(PROOF.findall(proof))
    return Row(number, tuple(CODE.findall(name)) or (name,), must, tests, reason, pending)


# --- the reports ---


def read_reports(paths: Iterable[Path]) -> tuple[Cases, list[str]]:
    """Every case of the reports, and those of them that cannot be read or hold no case."""
    cases: Cases = {}
    problems = []
    for path in paths:
        try:
            found = list(ElementTree.parse(path).getroot().iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            problems.append(f"{path}: {error}")
            continue
        if not found:
            problems.append(f"{path}: it holds no test")
        for case in found:
            key = (case.get("classname", ""), case.get("name", ""))
            cases[key] = max(cases.get(key, (Outcome.SKIPPED, "")), _outcome(case))
    return cases, problems


def _outcome(case: ElementTree.Element) -> tuple[Outcome, str]:
    if case.find("failure") is not None or case.find("error") is not None:
        return Outcome.FAILED, ""
    skipped = case.find("skipped")
    return (Outcome.PASSED, "") if skipped is None else (Outcome.SKIPPED, skipped.get("message", ""))


# --- both ---


def check_row(row: Row, cases: Cases, suite: Suite) -> tuple[list[str], set[str]]:
    """What is wrong with a row, a clause each; and its tests that were skipped for lack of a program, as they may."""
    if row.pending:
        return ["its proof is pending"], set()
    if not row.tests and not row.reason:
        return ["it has neither a test nor a reason for its exclusion"], set()
    if not row.must:
        return ["it does not say what must hold"], set()
    clauses, lacking = [], set()
    for test, program in row.tests.items():
        clause, reasons = check_test(test, cases, suite)
        if program and reasons and all(re.search(rf"\b{re.escape(program)}\b", reason) for reason in reasons):
            lacking.add(test)
        elif clause:
            clauses.append(f"{test} {clause}")
    if lacking and lacking == set(row.tests):
        clauses.append("all of its tests were skipped")
    return clauses, lacking


def check_test(test: str, cases: Cases, suite: Suite) -> tuple[str, list[str]]:
    """What is wrong with a named test, empty where nothing is; and where it was skipped, the reasons."""
    address, bracket, _ = test.partition("[")
    file, *classes, function = address.split("::")
    holders = suite.named(file)
    if len(holders) != 1:
        return f"names {len(holders)} files where one is needed", []
    if function not in _definitions(holders[0], classes):
        return "does not exist", []
    place = holders[0].relative_to(suite.root).with_suffix("").as_posix().replace("/", ".")
    owner, wanted = ".".join([place, *classes]), function + test[len(address) :]
    found = [
        case
        for (classname, name), case in cases.items()
        if classname == owner and (name if bracket else name.partition("[")[0]) == wanted
    ]
    if not found:
        return "was not run", []
    if any(outcome is Outcome.FAILED for outcome, _ in found):
        return "failed", []
    reasons = [reason for outcome, reason in found if outcome is Outcome.SKIPPED]
    return "was skipped" if reasons else "", reasons


def _definitions(path: Path, classes: Sequence[str]) -> set[str]:
    """Functions of a module, or of a class in it."""
    body: Sequence[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for name in classes:
        owners = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
        body = [part for owner in owners for part in owner.body]
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


if __name__ == "__main__":
    sys.exit(main())
