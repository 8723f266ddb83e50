"""The RDMA suite: one pytest inside one VM for all that one machine can show, then one here for what takes two.

Owns which folders run where and how pytest is called.  Must never report success where no test ran.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from native_packages import ENGRAM, OFL, PACKAGES
from native_packages import REPOSITORY as ROOT

from rdma_vm.junit import merge_reports
from rdma_vm.kit import Kit
from rdma_vm.stage import TESTS, Stage
from rdma_vm.vm import Vm

INSIDE = (TESTS / "rdma", TESTS / "behaviour", ENGRAM.tests / "rdma")
"""Run in the VM: what is RDMA's own, what every backend must do, tables over RDMA.  One that is not there is left out.
"""
BESIDE = (TESTS / "two_vms",)
"""Run here, by tests that boot two VMs and tell them what to do."""
FOLDERS = (*INSIDE, *BESIDE)

DEVICE = "rxe0"
TIME_SCALE = 10
"""How many times longer than on hardware an interval of a test must be under emulation."""
INSIDE_S_MAX = 3000.0
TEST_S_MAX = 900
"""A test that takes longer hangs: pytest shows where and ends."""
PYTEST = (
    "-m",
    "pytest",
    "-p",
    "no:cacheprovider",
    "-o",
    f"faulthandler_timeout={TEST_S_MAX}",
    "-o",
    "faulthandler_exit_on_timeout=true",
)
PASSED, NO_TESTS = 0, 5
"""pytest's exit statuses that are no failure."""


@dataclass(frozen=True)
class Selection:
    """What was asked for: test paths for either side, and pytest's other arguments for both."""

    inside: tuple[str, ...]
    beside: tuple[str, ...]
    arguments: tuple[str, ...]

    @staticmethod
    def of(words: Sequence[str]) -> "Selection":
        """Words that are paths below a package's tests select them; without any, all folders run.

        A path that is not there is for pytest to refuse, on the side where it would be.
        """
        paths = [word for word in words if _is_test_path(word)]
        beside = [path for path in paths if Path(path).is_relative_to(BESIDE[0])]
        inside = [path for path in paths if path not in beside]
        if not paths:
            inside, beside = (
                [str(path) for path in folders if (ROOT / path).is_dir()] for folders in (INSIDE, BESIDE)
            )
        return Selection(tuple(inside), tuple(beside), tuple(word for word in words if word not in paths))


def run_suite(
    kit: Kit, base: Path, libraries: Sequence[Path], site: Path, words: Sequence[str], report: Path
) -> int:
    """Run what was selected on both sides and write one report.  Returns pytest's exit status.  Raises VmError.

    base: where the copy for the guest is laid for the time of the run.  libraries: to test.  words: pytest's arguments.
    """
    selection = Selection.of(words)
    with (
        tempfile.TemporaryDirectory(prefix="stage-", dir=base) as folder,
        tempfile.TemporaryDirectory(prefix="rdma-vm-shared-") as shared_name,
    ):
        stage, shared = Stage.lay(Path(folder), libraries, site), Path(shared_name)
        reports = (shared / "inside.xml", shared / "beside.xml")
        statuses = []
        if selection.inside:
            statuses.append(_run_inside(kit, stage, shared, selection, reports[0]))
        if selection.beside:
            statuses.append(_run_beside(kit, stage, shared, selection, reports[1]))
        tests = merge_reports(reports, report)
    failed = [status for status in statuses if status not in (PASSED, NO_TESTS)]
    if failed:
        return failed[0]
    return PASSED if tests else NO_TESTS


def _run_inside(kit: Kit, stage: Stage, shared: Path, selection: Selection, report: Path) -> int:
    with Vm(kit, shared) as vm:
        vm.wait_ready()
        print(f"rdma: the VM was ready after {vm.ready_s:.1f} s; its tests:", flush=True)
        environment = {
            "OFL_TEST_BACKENDS": "rdma",
            "OFL_TEST_TIME_SCALE": str(TIME_SCALE),
            "OFL_TEST_RDMA_DEVICE": DEVICE,
            "OFL_TEST_RDMA_ADDRESS": vm.address,
        }
        words = [*PYTEST, f"--junit-xml={report}", *selection.inside, *selection.arguments]
        ended = vm.run(f"({stage.python(*words, environment=environment)}) 2>&1", INSIDE_S_MAX, show=_show)
        if ended.status not in (PASSED, NO_TESTS):
            print(f"rdma: pytest in the VM ended with {ended.status}\n{vm.diagnosis()}", flush=True)
        return ended.status


def _run_beside(kit: Kit, stage: Stage, shared: Path, selection: Selection, report: Path) -> int:
    print("rdma: tests of two VMs:", flush=True)
    environment = os.environ | stage.environment()
    path = [environment["PYTHONPATH"], str(OFL.root / "tools")]
    environment |= {
        "PYTHONPATH": os.pathsep.join(path),
        "OFL_TEST_TIME_SCALE": str(TIME_SCALE),
        "RDMA_VM_KIT": str(kit.folder),
        "RDMA_VM_STAGE": str(stage.folder),
    }
    command = [sys.executable, *PYTEST, f"--junit-xml={report}", *selection.beside, *selection.arguments]
    return subprocess.run(command, cwd=stage.folder, env=environment, check=False).returncode


def _is_test_path(word: str) -> bool:
    path = Path(word.partition("::")[0])
    return any(path.is_relative_to(package.tests) for package in PACKAGES)


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
