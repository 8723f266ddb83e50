"""Makes `synthetic_engine` and `synthetic_evidence` importable (tests are imported by path)."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# A shared machine may stall any example; one of these judges a whole run's evidence several times.
settings.register_profile("checks", deadline=None, max_examples=25)
settings.load_profile("checks")
