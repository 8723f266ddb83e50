"""Tests of tables over real RDMA, which run inside the VM of `nox -s rdma`.  Elsewhere none of them is collected.

Must never skip a test inside: there the device is known to be.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DEVICE = os.environ.get("OFL_TEST_RDMA_DEVICE", "")
collect_ignore_glob = [] if DEVICE else ["*"]

if DEVICE:
    sys.path.insert(0, str(Path(__file__).parent))
    from engram_rdma_host import TableHost, serving_host
    from engram_rdma_rows import SyntheticRows


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "smoke: the short part of the RDMA suite, which CI runs")


@pytest.fixture(scope="session")
def rows() -> "SyntheticRows":
    """What every row must be."""
    return SyntheticRows(seed=5, sizes={1: 6_001, 14: 5_300, 23: 4_700})


@pytest.fixture(scope="session")
def tables(rows: "SyntheticRows", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with their shards."""
    return rows.build(tmp_path_factory.mktemp("tables") / "out")


@pytest.fixture(scope="session")
def host(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["TableHost"]:
    """`engram-remote serve`, over RDMA and TCP of this machine's address; a test leaves it serving."""
    with serving_host(tables, tmp_path_factory.mktemp("host"), os.environ["OFL_TEST_RDMA_ADDRESS"]) as one:
        yield one
