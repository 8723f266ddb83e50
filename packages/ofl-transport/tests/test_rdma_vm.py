"""The tool that runs the RDMA suite in a VM: what it selects and reports, and its reasons where there can be no VM."""

import os
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from rdma_vm.junit import merge_reports, report_skipped
from rdma_vm.prerequisites import INSTALLED, UnavailableError, require_platform, require_programs
from rdma_vm.suite import Selection

ROOT = Path(__file__).parents[3]
TESTS = "packages/ofl-transport/tests"


def test_without_a_path_every_folder_runs_on_its_side() -> None:
    selection = Selection.of(["-k", "mapped", "-x"])
    assert f"{TESTS}/rdma" in selection.inside
    assert "packages/engram-remote/tests/rdma" in selection.inside
    assert selection.beside == (f"{TESTS}/two_vms",)
    assert selection.arguments == ("-k", "mapped", "-x")


def test_paths_select_and_go_to_the_side_that_they_belong_to() -> None:
    inside, beside = f"{TESTS}/rdma/test_soft_roce.py::test_x[1]", f"{TESTS}/two_vms/test_wire.py"
    assert Selection.of(["-v", inside]) == Selection((inside,), (), ("-v",))
    assert Selection.of([beside, "-v"]) == Selection((), (beside,), ("-v",))
    assert Selection.of([inside, beside]) == Selection((inside,), (beside,), ())
    tables = "packages/engram-remote/tests/rdma/test_tables_over_rdma.py"
    assert Selection.of([tables, "-v"]) == Selection((tables,), (), ("-v",))
    missing = f"{TESTS}/rdma/test_of_a_name_that_is_not_there.py"
    assert Selection.of([missing]) == Selection((missing,), (), ())


def test_a_word_that_names_no_test_is_an_argument_of_pytest() -> None:
    assert Selection.of([f"{TESTS}/rdma", "-k", "packages"]).arguments == ("-k", "packages")


def test_reports_are_merged_and_one_that_is_missing_adds_nothing(tmp_path: Path) -> None:
    for name in ("one", "two"):
        cases = "".join(f'<testcase classname="{name}" name="test_{number}"/>' for number in range(2))
        (tmp_path / f"{name}.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    sources = [tmp_path / f"{name}.xml" for name in ("one", "missing", "two")]
    assert merge_reports(sources, tmp_path / "merged.xml") == 4
    found = ElementTree.parse(tmp_path / "merged.xml").getroot().iter("testcase")
    assert [case.get("classname") for case in found] == ["one", "one", "two", "two"]


def test_a_skipped_suite_names_every_test_and_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "some"
    folder.mkdir(parents=True)
    (folder / "test_it.py").write_text("def helper(): ...\ndef test_a(): ...\ndef test_b(): ...\n")
    assert report_skipped(tmp_path, [Path("tests", "some")], "no QEMU", tmp_path / "out.xml") == 2
    cases = list(ElementTree.parse(tmp_path / "out.xml").getroot().iter("testcase"))
    assert [(case.get("classname"), case.get("name")) for case in cases] == [
        ("tests.some.test_it", "test_a"),
        ("tests.some.test_it", "test_b"),
    ]
    reasons = [case.find("skipped") for case in cases]
    assert [reason.get("message") for reason in reasons if reason is not None] == ["no QEMU"] * 2


def test_without_root_the_reason_names_the_packages_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        shutil, "which", lambda name: None if name in ("cpio", "qemu-system-x86_64") else f"/usr/bin/{name}"
    )
    with pytest.raises(
        UnavailableError, match=r"only root can install: apt-get install cpio qemu-system-x86$"
    ):
        require_programs()


def test_the_page_names_every_package_that_is_installed() -> None:
    page = (ROOT / "docs" / "transport" / "rdma-vm.md").read_text(encoding="utf-8")
    needs = page.split("## What it needs")[1].split("\n## ")[0]
    assert {package for package in INSTALLED.values() if f"`{package}`" not in needs} == set()


def test_without_apt_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UnavailableError, match="apt-get is not here"):
        require_platform()


def test_on_another_architecture_the_reason_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UnavailableError, match="this is Linux on aarch64"):
        require_platform()
