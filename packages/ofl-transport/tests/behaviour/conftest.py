"""Every test of this folder runs once per wire: `harness` makes servers and clients on it, `backend` names it."""

from collections.abc import Iterator

import pytest
from transport_backends import Backend, asked_for
from transport_harness import Harness


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "smoke: the short part of the RDMA suite, which CI runs")


@pytest.fixture(params=asked_for(), ids=str)
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    return chosen


@pytest.fixture
def harness(backend: Backend) -> Iterator[Harness]:
    """Everything it made is closed in reverse order."""
    made = Harness(backend)
    with made.stack:
        yield made
