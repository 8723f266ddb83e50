"""The platform file: what is wrong with it is a sentence that names the field."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from qualification.runs.platform import PlatformError, parse_platform, read_platform

ROOT = Path(__file__).parents[3]


@pytest.fixture
def good(tmp_path: Path) -> dict[str, Any]:
    """A platform of vLLM, all its folders there."""
    for name in ("target", "drafter"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    return {
        "name": "here",
        "engine": "vllm",
        "python": sys.executable,
        "target": "target",
        "drafter": "drafter",
        "worker": {"endpoint": "tcp://worker:18620"},
    }


def test_paths_are_taken_from_the_files_folder(good: dict[str, Any], tmp_path: Path) -> None:
    platform = parse_platform(good, tmp_path)
    assert platform.target == str(tmp_path / "target")
    assert platform.drafts == 5


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": ({"colour": "red"}, "colour: there is no such field."),
    "missing": ({"name": None}, "name: it must be set."),
    "name": ({"name": "My Box"}, "name: lower-case letters, digits"),
    "engine": ({"engine": "tgi"}, "engine: 'tgi' is given where 'vllm' or 'simulator' is needed."),
    "type": ({"drafts": "5"}, "drafts: '5' is given where a valid integer is needed."),
    "range": ({"drafts": 0}, "drafts: 0 is given where greater than or equal to 1 is needed."),
    "no python": ({"python": "nowhere/python"}, "nowhere/python is no file."),
    "no target": ({"target": None}, "target: it must be set for the engine 'vllm'."),
    "no drafter": ({"drafter": "nowhere"}, "nowhere holds no config.json."),
    "no worker": ({"worker": None}, "worker: exactly one of 'endpoint' and 'command' must be set"),
    "two workers": ({"worker": {"endpoint": "tcp://a:1", "command": ["x"]}}, "worker: exactly one of"),
    "endpoint": ({"worker": {"endpoint": "http://a"}}, "worker.endpoint: endpoint 'http://a': scheme"),
    "port 0": ({"worker": {"endpoint": "tcp://a:0"}}, "worker.endpoint: 'tcp://a:0' can be listened on"),
    "place": ({"worker": {"command": ["{pyton}"]}}, "worker.command: {pyton} stands for nothing"),
    "no command": ({"worker": {"command": []}}, "worker.command: a program is needed."),
    "key file": ({"worker": {"endpoint": "tcp://a:1", "key_file": "key"}}, "worker.key_file: "),
    "text": ({"prompt_text": "nowhere.txt"}, "prompt_text: "),
    "capability": ({"capabilities": ["speed"]}, "capabilities: 'speed' is none of row_reduction"),
    "below": ({"every_arm": {"argument": {}}}, "every_arm.argument: there is no such field."),
    "environment": ({"every_arm": {"environment": {"A": 1}}}, "every_arm.environment.A: 1 is given where"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_wrong_field_is_one_sentence(good: dict[str, Any], tmp_path: Path, wrong: str) -> None:
    changes, sentence = WRONG[wrong]
    values = {name: value for name, value in (good | changes).items() if value is not None}
    with pytest.raises(PlatformError) as refused:
        parse_platform(values, tmp_path)
    (problem,) = refused.value.problems
    assert sentence in problem
    assert problem.endswith(".")


def test_all_problems_are_told_at_once(good: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PlatformError) as refused:
        parse_platform(good | {"name": "My Box", "drafts": 0, "more": 1}, tmp_path)
    assert len(refused.value.problems) == 3


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "platform.toml"
    path.write_text("name = ")
    with pytest.raises(PlatformError, match="is not TOML"):
        read_platform(path)
    path.write_text("name = " + "[" * 50_000)
    with pytest.raises(PlatformError, match="is not TOML: maximum recursion depth"):
        read_platform(path)
    with pytest.raises(PlatformError, match="cannot be read"):
        read_platform(tmp_path / "other.toml")


def test_the_platform_file_of_the_cpu_rehearsal_lacks_at_most_the_engine() -> None:
    """Its engine environment may not be there; everything else is in the repository."""
    folder = ROOT / "qualification" / "platforms"
    values = tomllib.loads((folder / "cpu.toml").read_text(encoding="utf-8")) | {"python": sys.executable}
    assert parse_platform(values, folder).engine == "vllm"
