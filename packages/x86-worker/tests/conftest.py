"""Makes the fakes beside this file importable: `engine_twin`, `drafter_twins`, `transport_twin`,
`mock_process`.
"""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "fakes"))

# A shared machine may stall any example; the suite's own limits catch a hang.
settings.register_profile("worker", deadline=None)
settings.load_profile("worker")
