"""A run that a test drives by hand, and arms that are small scripts."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from qualification.runs import folder
from qualification.runs.folder import Run
from qualification.runs.platform import Platform, parse_platform
from qualification.runs.window import Limits

sys.path.insert(0, str(Path(__file__).parent))
from one_check import CHECK, MakePlatform, MakeRun  # once its folder is on the path


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    """Runs of the check above, begun."""
    made: list[Run] = []

    def make(platform: Platform, limits: Limits | None = None) -> Run:
        limits = limits or Limits(60, 60, 60)
        made.append(
            folder.begin(tmp_path / "evidence", f"run{len(made)}", platform, [CHECK], limits, bytes(32))
        )
        return made[-1]

    yield make
    for run in made:
        run.close()


@pytest.fixture
def scripted(tmp_path: Path) -> MakePlatform:
    """A platform whose Python is a shell script of these lines, whatever it is told to run."""

    def make(lines: Sequence[str]) -> Platform:
        script = tmp_path / "python"
        script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        script.chmod(0o755)
        values = {"name": "scripted", "engine": "simulator", "python": str(script), "start_s": 20.0}
        return parse_platform(values, tmp_path)

    return make


@pytest.fixture
def simulator() -> Platform:
    """The simulated engine in this Python."""
    values = {"name": "simulator", "engine": "simulator", "python": sys.executable, "start_s": 60.0}
    return parse_platform(values, Path.cwd())
