"""The engine suite runs in the engine environment alone; elsewhere its files are not even imported.

Makes the helpers beside this file importable: `reference` and the rest.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]

if not collect_ignore_glob:
    from driver import Engine

    Engine.preloaded = True
