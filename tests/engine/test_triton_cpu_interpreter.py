"""The CPU engine's helper distribution repairs what it says it repairs.

That context keys are normalised by layer is asserted on a real engine in test_reference_equals_vllm.py.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine


def run_kernels(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(Path(__file__).parent / "interpreter_kernels.py")],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    done = run_kernels(TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-2000:]
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def test_kernels_run_in_the_interpreter_with_log1p_and_masks_of_mixed_types(results: dict[str, Any]) -> None:
    # Exact also where 1 + x rounds to 1 in float32.
    assert results["log1p"] == pytest.approx([0.0, 1e-7, math.log(0.5), math.log(4)], rel=1e-6)
    assert results["masked"] == [0.0, pytest.approx(1e-7), -0.5, 0.0]


def test_the_language_is_patched_for_the_first_launch_alone(results: dict[str, Any]) -> None:
    assert results["patched"] == 0


def test_a_kernel_without_the_interpreter_is_refused_with_what_to_set() -> None:
    done = run_kernels(TRITON_INTERPRET="0")
    assert done.returncode != 0
    assert "this Triton backend only interprets: set TRITON_INTERPRET=1" in done.stderr
