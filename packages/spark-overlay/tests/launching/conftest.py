"""A site whose every value is right, and an environment without any setting of ours.

Makes `launch_rig` importable (tests are imported by path).
"""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from launch_rig import IDENTITY, MARKOV, Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A deployment in a folder of its own."""
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        monkeypatch.delenv(name)
    made = Place(tmp_path)
    made.drafter.mkdir()
    (made.drafter / "config.json").write_text("{}")
    (made.drafter / "model.safetensors").write_bytes(b"")
    made.identity.write_text(f'{{"identity": "{IDENTITY}", "markov_identity": "{MARKOV}"}}')
    made.write()
    return made
