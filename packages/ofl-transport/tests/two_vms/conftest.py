"""Two VMs joined by one wire, for tests that run here and tell them what to do.

`nox -s rdma` provides what they are made of; elsewhere none of these tests is collected.
"""

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

KIT = os.environ.get("RDMA_VM_KIT", "")
collect_ignore_glob = [] if KIT else ["*"]

if KIT:
    from rdma_vm.kit import Kit
    from rdma_vm.stage import Stage
    from rdma_vm.two_vms import TwoVms, boot_pair


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "smoke: the short part of the RDMA suite, which CI runs")


@pytest.fixture(scope="session")
def booted_vms() -> Iterator["TwoVms"]:
    """Booted once for all tests; a test takes `two_vms` instead."""
    with tempfile.TemporaryDirectory(prefix="rdma-vm-shared-") as folder:
        shared = Path(folder)
        a, b = boot_pair(Kit(Path(KIT)), shared)
        with a, b:
            a.wait_ready()
            b.wait_ready()
            yield TwoVms(a, b, shared, Stage(Path(os.environ["RDMA_VM_STAGE"])))


@pytest.fixture
def two_vms(booted_vms: "TwoVms") -> Iterator["TwoVms"]:
    """The two VMs, with the wire whole; what a test leaves running or cut is ended and mended after it."""
    yield booted_vms
    for vm in (booted_vms.a, booted_vms.b):
        vm.mend()
        vm.end_jobs()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report says how the two VMs are: counters, kernel's log, console."""
    report = yield
    vms = item.funcargs.get("two_vms")
    if report.failed and isinstance(vms, TwoVms):
        report.sections += [(f"VM {vm.name}", vm.diagnosis()) for vm in (vms.a, vms.b)]
    return report
