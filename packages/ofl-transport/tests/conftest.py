"""Makes `transport_harness` importable (tests are imported by path) and gives tests a harness that cleans up."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from transport_harness import Harness


@pytest.fixture
def harness() -> Iterator[Harness]:
    """Everything it made is closed in reverse order."""
    made = Harness()
    with made.stack:
        yield made
