"""Makes the corpus beside this file importable: `receipt_corpus`; and gives tests a sound run and a bench."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from receipt_corpus.bench import Bench

# A shared machine may stall any example; the suite's own limits catch a hang.
settings.register_profile("receipts", deadline=None)
settings.load_profile("receipts")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A sound run on the disk, which a test may break."""
    return Bench.make(tmp_path / "run")
