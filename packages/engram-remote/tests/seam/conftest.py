"""The seam against stock: collected only where torch and Triton are and an unpacked vLLM release is named.

Makes the helpers beside this file importable.  Where there is no GPU the kernels run in Triton's interpreter, which
must be chosen before the first kernel is defined.
"""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from engram_seam_stock import releases, stock_module  # noqa: E402

HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "triton"))
collect_ignore_glob = [] if HAS_TORCH and releases() else ["test_*.py"]
if HAS_TORCH:
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def stocks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """Every release's embedding."""
    folder = tmp_path_factory.mktemp("stock")
    return {
        version: stock_module(path, folder, f"engram_seam_stock_{version.replace('.', '_')}")
        for version, path in releases().items()
    }
