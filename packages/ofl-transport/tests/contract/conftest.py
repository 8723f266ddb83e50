"""Makes the helpers beside this file importable: `contract_samples`, `contract_strategies`,
`write_vectors`."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# A shared machine may stall any example; the suite's own limits catch a hang.
settings.register_profile("contract", deadline=None)
settings.load_profile("contract")
