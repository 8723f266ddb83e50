"""Makes `doctor_engine` importable, which stands beside doctor's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "doctor"))
