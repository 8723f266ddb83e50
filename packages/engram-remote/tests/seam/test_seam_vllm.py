"""In a real vLLM: untouched without the setting, bound with it, also where stock's module was imported before."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engram_remote import native
from engram_seam_tables import model_config, sources, write_tables

try:
    native.loaded()
    MISSING = "" if importlib.util.find_spec("vllm") else "vLLM is not installed here"
except ImportError as error:
    MISSING = str(error)

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
SCRIPT = Path(__file__).with_name("engram_seam_in_vllm.py")
STOCK = "vllm.models.deepseek_v41.common.engram"


def run(folder: Path, when: str, **environ: str) -> subprocess.CompletedProcess[str]:
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "TRITON_INTERPRET": "1"}
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), when],
        env=dict(os.environ) | quiet | environ, capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip


def found(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_without_the_setting_stock_is_stocks_own(tmp_path: Path) -> None:
    said = found(run(tmp_path, "imported"))
    assert (said["module"], said["name"], said["guarded"]) == (STOCK, "ParallelEngramEmbedding", False)
    assert said["ours"] == ["engram_remote.vllm_seam", "engram_remote.vllm_seam.plugin"]


@pytest.mark.parametrize("when", ["imported", "not-imported"])
def test_with_the_setting_stocks_engram_constructs_the_replacement(tmp_path: Path, when: str) -> None:
    config = model_config()
    write_tables(tmp_path, config, sources(config), 1)
    environ = {"VLLM_ENGRAM_REMOTE": "tcp://127.0.0.1:1", "VLLM_ENGRAM_REMOTE_TABLES": str(tmp_path)}
    said = found(run(tmp_path, when, **environ))
    assert said["name"] == "RemoteParallelEngramEmbedding"
    assert said["stock's function"] == STOCK
    assert said["bound once"] == "ParallelEngramEmbedding"
    assert said["guarded"]
    assert (said["layer"], said["allocated"], said["rows"]) == (14, 0, True)


def test_a_bad_setting_ends_the_process_that_loads_the_plugin(tmp_path: Path) -> None:
    environ = {"VLLM_ENGRAM_REMOTE": "tcp://127.0.0.1:1", "VLLM_ENGRAM_REMOTE_TABLES": str(tmp_path)}
    done = run(tmp_path, "not-imported", **environ, VLLM_ENGRAM_REMOTE_TIMEOUT_MS="0")
    assert done.returncode != 0
    assert "VLLM_ENGRAM_REMOTE_TIMEOUT_MS: a finite number above 0 is needed, not 0.0." in done.stderr
