"""The suite that needs a CUDA GPU; elsewhere its files are not even imported.

Makes importable what it shares with the engine suite (`reference`) and its own helpers.  GPU_TEST_DEVICE=cpu
rehearses it where there is no GPU: the same tests, which then prove the harness and nothing about a GPU.
"""

import os
import sys
from pathlib import Path

import pytest

try:
    import torch
except ModuleNotFoundError:
    DEVICE = None
else:
    wanted = os.environ.get("GPU_TEST_DEVICE") or "cuda"
    DEVICE = torch.device(wanted) if wanted == "cpu" or torch.cuda.is_available() else None

# The root's conftest does not speak for paths that are named on the command line.
collect_ignore_glob = [] if DEVICE else ["test_*.py"]

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "engine")]


@pytest.fixture(scope="session")
def device() -> "torch.device":
    """Where everything under test computes."""
    assert DEVICE is not None
    return DEVICE
