"""Makes the helpers beside this file importable: `engram_tables` and whatever else begins with `engram_`."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# A shared machine may stall any example; the suite's own limits catch a hang.
settings.register_profile("engram", deadline=None)
settings.load_profile("engram")
