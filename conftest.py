"""Root of the test tree: tests are collected only where what they need is there, and the report says so."""

import contextlib
import importlib.util
import os
import signal
import warnings

# pytest names test modules by their path; the folder `qualification` would then stand for the package of that name.
with contextlib.suppress(ModuleNotFoundError):
    import qualification.cli  # noqa: F401

# Whoever runs us in the background may have SIGINT ignored, which our children would inherit: tests send it to them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def has_gpu() -> bool:
    """Whether torch is there and can use a CUDA GPU."""
    if not importlib.util.find_spec("torch"):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a driver that does not fit; the answer is then no
        import torch

        return bool(torch.cuda.is_available())


HAS_ENGINE = all(importlib.util.find_spec(name) for name in ("torch", "vllm"))
GPU_REHEARSAL = os.environ.get("GPU_TEST_DEVICE") == "cpu"
HAS_GPU = has_gpu()
HAS_ENGINE_PYTHON = bool(os.environ.get("QUALIFY_ENGINE_PYTHON"))
collect_ignore = [
    *([] if HAS_ENGINE else ["tests/engine"]),
    *([] if HAS_GPU or GPU_REHEARSAL else ["tests/gpu"]),
    *([] if HAS_ENGINE_PYTHON else ["tests/qualification/test_real_engine.py"]),
]


def pytest_report_header() -> list[str]:
    """Which of the tests that need more than Python are in this run."""
    engine = "collected" if HAS_ENGINE else "not collected here (run `nox -s engine_test`)"
    gpu = "collected" if HAS_GPU else "not collected here (run `nox -s gpu_test` where torch has a CUDA GPU)"
    if GPU_REHEARSAL:
        gpu = "rehearsed on the CPU, which proves nothing about a GPU"
    contracts = (
        "collected" if os.environ.get("VLLM_RELEASES") else "not collected here (run `nox -s contracts`)"
    )
    real = "collected" if HAS_ENGINE_PYTHON else "not collected here (run `nox -s qualify_test`)"
    return [
        f"engine tests: {engine}",
        f"contracts with vLLM: {contracts}",
        f"gpu tests: {gpu}",
        f"qualification on a real engine: {real}",
    ]
