"""What the seam relies on in vLLM's sources: collected only where unpacked releases are named, and then for all.

Makes the helpers beside this file importable.  Nothing of vLLM is imported here, or could be.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore_glob = [] if os.environ.get("VLLM_RELEASES") else ["test_*.py"]
