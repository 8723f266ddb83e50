"""Makes the receipts' corpus and `pages` importable (tests are imported by path)."""

import sys
from pathlib import Path

from hypothesis import settings

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "receipts")]

# A shared machine may stall any example; each of these signs and publishes a run.
settings.register_profile("review", deadline=None, max_examples=20)
settings.load_profile("review")
