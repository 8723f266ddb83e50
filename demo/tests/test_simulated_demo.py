"""`./run demo --engine sim`: the same summary over token ids, without vLLM or torch, in seconds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120.0


def tell(folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Run the demo; its figures and what it showed."""
    file = folder / "figures.json"
    command = [sys.executable, "-m", "demo", "--engine", "sim", "--json", str(file), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    figures: dict[str, Any] = json.loads(file.read_text())
    return figures, done.stdout


def test_the_text_is_the_targets_own_and_most_of_it_was_drafted(tmp_path: Path) -> None:
    figures, shown = tell(tmp_path, "--prompt", "ab", "--tokens", "200")
    assert figures["engine"] == "sim"
    assert figures["text_equal"] is True
    assert figures["tokens"] == 200
    assert figures["rounds_failed"] == 0
    # Three of four draft positions are right: .75 + .75**2 + ... + .75**5 = 2.3 accepted a round.
    assert 1.5 < figures["accepted_per_round"] < 3.2
    assert 200 / 6 <= figures["rounds_ok"] < 120, "six tokens a round at most, and fewer rounds than tokens"
    assert shown.split("\n")[2] == "97 98", "a prompt's tokens are its bytes"
    assert "all 200 tokens are what the simulated target" in shown


def test_the_drill_kills_the_worker_and_drafting_comes_back(tmp_path: Path) -> None:
    figures, shown = tell(tmp_path, "--drill", "--drill-round", "7")
    drill = figures["drill"]
    assert drill["completed"] is True
    assert drill["killed_at_round"] == 7
    assert drill["tokens_without_worker"] >= 16
    assert drill["fallback_rounds"] == figures["rounds_failed"] > 0
    assert drill["resync_rows"] > 0
    assert drill["good_rounds_after_restart"] == 100
    assert figures["text_equal"] is True
    assert sum(figures["fallbacks"].values()) == figures["rounds_failed"]
    assert shown.index("[the worker was killed]") < shown.index("[the worker is started again]")


def test_two_runs_say_the_same(tmp_path: Path) -> None:
    assert tell(tmp_path, "--tokens", "64") == tell(tmp_path, "--tokens", "64")


@pytest.mark.parametrize("module", ["demo.simulated.telling", "demo.simulated.__main__"])
def test_it_loads_neither_torch_nor_vllm(module: str) -> None:
    code = f"import sys, {module}; assert not {{'torch', 'vllm'}} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
