"""Makes `checkpoint_folders` importable, which stands beside the tests of checkpoints."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "drafters"))
