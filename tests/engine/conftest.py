"""The engine suite runs in the engine environment alone; elsewhere its files are not even imported.

Makes the helpers beside this file importable: `reference` and the rest.  The files that last longest come first: where
two run at a time, neither is left alone with one of them at the end.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

LONGEST = (
    "test_faults_two_ranks.py",
    "test_faults.py",
    "test_shadow_agreement.py",
    "test_tensor_parallel.py",
    "test_reference_equals_vllm.py",
)
"""Minutes each, the longest first."""

collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]

if not collect_ignore_glob:
    from driver import Engine

    Engine.preloaded = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By file alone, so that the tests of a file stay together and in order."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    known = item.path.parent == Path(__file__).parent and item.path.name in LONGEST
    return LONGEST.index(item.path.name) if known else len(LONGEST)
