"""For tests of real RDMA, which run inside the VM of `nox -s rdma`.  It says where the device is.

Elsewhere none of these tests is collected.  Must never skip a test inside: there the device is known to be.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

DEVICE = os.environ.get("OFL_TEST_RDMA_DEVICE", "")
collect_ignore_glob = [] if DEVICE else ["*"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "smoke: the short part of the RDMA suite, which CI runs")


@pytest.fixture(scope="session")
def rdma_device() -> str:
    """The device's name, as in /sys/class/infiniband."""
    return DEVICE


@pytest.fixture(scope="session")
def rdma_address() -> str:
    """The IPv4 address of the network interface that the device is on."""
    return os.environ["OFL_TEST_RDMA_ADDRESS"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report says what the device has counted."""
    report = yield
    if report.failed:
        report.sections.append((f"counters of {DEVICE} that are not 0", _counters()))
    return report


def _counters() -> str:
    folder = Path("/sys/class/infiniband", DEVICE, "ports", "1", "hw_counters")
    values = {
        path.name: path.read_text().strip() for path in sorted(folder.glob("*")) if path.name != "lifespan"
    }
    return "\n".join(f"{name} {value}" for name, value in values.items() if value != "0")
