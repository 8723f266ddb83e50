"""JUnit reports: several made one, and one that says that nothing could run, and why."""

import ast
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from pathlib import Path


def merge_reports(sources: Iterable[Path], target: Path) -> int:
    """Write the suites of all reports that are there into one.  Returns how many tests they have."""
    merged = ElementTree.Element("testsuites", name="pytest tests")
    for source in sources:
        if source.is_file():
            merged.extend(ElementTree.parse(source).getroot().iter("testsuite"))
    _write(merged, target)
    return len(list(merged.iter("testcase")))


def report_skipped(root: Path, folders: Sequence[Path], reason: str, target: Path) -> int:
    """Write a report in which every test function below the folders is skipped.  Returns how many there are.

    folders: relative to root.  Tests are named as pytest would, the brackets of parameters left out.
    """
    names = [name for folder in folders for name in _tests(root, folder)]
    report = ElementTree.Element("testsuites", name="pytest tests")
    count = str(len(names))
    counts = {"name": "pytest", "errors": "0", "failures": "0", "skipped": count, "tests": count}
    suite = ElementTree.SubElement(report, "testsuite", counts)
    for module, name in names:
        case = ElementTree.SubElement(suite, "testcase", classname=module, name=name, time="0")
        ElementTree.SubElement(case, "skipped", type="pytest.skip", message=reason)
    _write(report, target)
    return len(names)


def _tests(root: Path, folder: Path) -> Iterable[tuple[str, str]]:
    """The dotted module and the name of each test function."""
    for path in sorted((root / folder).rglob("test_*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield module, node.name


def _write(report: ElementTree.Element, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(report).write(target, encoding="utf-8", xml_declaration=True)
