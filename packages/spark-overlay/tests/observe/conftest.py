"""What tests of observation share: settings, a sink that keeps records, and an observed drafter on a simulated wire.

Makes `drafter_rig` and `observed_rig` importable (tests are imported by path).
"""

import sys
from pathlib import Path

for folder in (Path(__file__).parents[1], Path(__file__).parent):
    sys.path.insert(0, str(folder))
