"""What the tests of delivery share; makes the rig beside this file importable."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from staging_rig import Fars


@pytest.fixture
def fars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fars:
    """No host yet."""
    (tmp_path / "fars").mkdir()
    monkeypatch.setenv("FARS", str(tmp_path / "fars"))
    return Fars(tmp_path / "fars")


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Path]:
    """Writes files of a folder, text by path; the folder."""

    def write(name: str = "source", **files: str) -> Path:
        for file, text in ({"a.txt": "a\n"} | files).items():
            path = tmp_path / name / file.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            os.utime(path, (1_700_000_000, 1_700_000_000))
        return tmp_path / name

    return write
